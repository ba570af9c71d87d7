"""Whether histories can be written where the settings say."""

import errno
import tempfile
from pathlib import Path

from dyorc.config import HistoriesConfig
from dyorc.errors import ConfigurationError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_folder(config: HistoriesConfig) -> None:
    """Makes the folder for histories, if there is to be one, and tries whether files can be made there. A full disk is no reason
    not to start: it may have room later, and what cannot be written until then is counted.

    Raises:
        ConfigurationError: If not. Names the setting and the folder.
    """
    if not config.folder:
        return
    folder = Path(config.folder).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in _FULL:
            return
        is_other = folder.exists() and not folder.is_dir()
        reason = "it is no folder" if is_other else error.strerror or str(error)
        raise ConfigurationError(
            f"telemetry.histories.folder is {folder}, and no histories can be written there: {reason}; name another folder"
        ) from error
