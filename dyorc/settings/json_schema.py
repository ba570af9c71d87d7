"""The JSON schema of ``dyorc.toml``, for editors, and for whoever makes another schema from it."""

import json

from dyorc.config import Settings
from dyorc.settings.descriptions import describe


def schema() -> str:
    """Returns it as text, the same for the same settings."""
    describe()
    content = Settings.model_json_schema()
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    content["title"] = "dyorc.toml"
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
