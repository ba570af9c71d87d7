"""The three ONNX models inside the PyPI package `rapidocr`, opened with onnxruntime; nothing is downloaded.

Only the package's model files are used, none of its Python. Sessions may be run from several threads at once.
"""

from importlib import metadata
from pathlib import Path

import numpy as np
import onnxruntime
from jaxtyping import Float, UInt8

DETECTION_MODEL = "PP-OCRv6_det_small.onnx"
ORIENTATION_MODEL = "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
RECOGNITION_MODEL = "PP-OCRv6_rec_small.onnx"


def load_model(file_name: str, num_threads: int) -> onnxruntime.InferenceSession:
    """Opens a session of one model file, computing on `num_threads` threads.

    Raises:
        FileNotFoundError: If the installed `rapidocr` carries other models.
    """
    path = Path(str(metadata.distribution("rapidocr").locate_file(f"rapidocr/models/{file_name}")))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: this example needs the models of rapidocr 3.10.0")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    # Three models share the cores: an idle session must not spin, and must give its scratch memory back.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run_model(session: onnxruntime.InferenceSession, images: Float[np.ndarray, "batch 3 height width"]) -> np.ndarray:
    """Returns the only output of a model that has one input and one output."""
    (output,) = session.run(None, {session.get_inputs()[0].name: images})
    return np.asarray(output)


def as_model_input(image: UInt8[np.ndarray, "height width 3"]) -> Float[np.ndarray, "3 height width"]:
    """Returns an RGB picture as the models read it: channels first, blue first, 0..255 mapped to -1..1.

    No value of `image` maps to exactly zero, so a column of zeros can only be padding.
    """
    scaled = image[:, :, ::-1].transpose(2, 0, 1).astype(np.float32, order="C")
    scaled *= 2 / 255
    scaled -= 1
    return scaled
