"""After the recognition model: its probabilities turned into text. Pure functions, called by the program `recognise`.

The model returns one row of probabilities per eight columns of the picture: class 0 is the blank of connectionist
temporal classification (CTC), then the alphabet.

Source: Graves et al., Connectionist Temporal Classification, ICML 2006, section 3.2 (best path decoding).
"""

import numpy as np
import onnxruntime
from jaxtyping import Float

BLANK = 0


def read_alphabet(session: onnxruntime.InferenceSession) -> list[str]:
    """Returns the character of each class of the recognition model, blank included; the model file carries them."""
    characters = session.get_modelmeta().custom_metadata_map["character"].split("\n")
    return ["", *characters, " "]


def decode(probabilities: Float[np.ndarray, "steps classes"], alphabet: list[str]) -> tuple[str, float]:
    """Returns the text along the best path, and the mean probability of its characters (0 for no text).

    The best class of each step counts where it differs from the step before and is not blank.
    """
    best = probabilities.argmax(axis=1)
    is_character = best != BLANK
    is_character[1:] &= best[1:] != best[:-1]
    (steps,) = np.nonzero(is_character)
    if not len(steps):
        return "", 0.0
    classes = best[steps]
    return "".join(alphabet[index] for index in classes), float(probabilities[steps, classes].mean())
