"""Draws a page of printed lines whose texts are known, one of them upside down. Run: `python sample_page.py out.png`.

Uses the font inside Pillow, so no system font is needed and every machine draws the same page.
"""

import argparse
import random
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

TEXTS: tuple[str, ...] = (
    "Invoice 2041",
    "Thank you for your order!",
    "Delivery by Thursday, 14 March",
    "The quick brown fox jumps over the lazy dog",
    "Total: 128.50 EUR",
    "Batches are shared by all pages in flight",
    "Please keep this page",
    "Chapter 7",
    "Every line is read on its own, whichever way up it stands",
    "Train 365 to Geneva, platform 9",
    "Page 12 of 40",
    "Questions? Call 555-0199",
)
FONT_SIZES = (24, 28, 32, 38)  # pixels
INKS = ((15, 15, 15), (20, 40, 110), (110, 25, 25), (25, 80, 40))
PAPER = (250, 249, 245)
PAGE_WIDTH = 1000  # pixels
LINE_GAP = 30  # pixels
MARGIN = 50  # pixels


def draw_page(seed: int = 0, num_lines: int = 8) -> tuple[UInt8[np.ndarray, "height width 3"], list[str]]:
    """Draws an RGB page and returns it with its texts in reading order; the same seed draws the same page.

    Args:
        seed: Chooses texts, order, sizes, colours, and which line stands upside down.
        num_lines: At most the number of `TEXTS`; 0 draws an empty page.
    """
    choose = random.Random(seed)
    texts = choose.sample(TEXTS, num_lines)
    lines = [draw_line(text, choose.choice(FONT_SIZES), choose.choice(INKS)) for text in texts]
    if lines:
        turned = choose.randrange(num_lines)
        lines[turned] = lines[turned].transpose(Image.Transpose.ROTATE_180)
    height = 2 * MARGIN + sum(line.height + LINE_GAP for line in lines)
    page = Image.new("RGB", (PAGE_WIDTH, height), PAPER)
    y = MARGIN
    for line in lines:
        page.paste(line, (choose.randint(MARGIN, max(MARGIN, PAGE_WIDTH - MARGIN - line.width)), y))
        y += line.height + LINE_GAP
    return np.asarray(page), texts


def draw_line(text: str, font_size: int, ink: tuple[int, int, int]) -> Image.Image:
    """Draws one line of text on a strip of paper just large enough."""
    font = ImageFont.load_default(size=font_size)
    left, top, right, bottom = (round(edge) for edge in font.getbbox(text))
    strip = Image.new("RGB", (right - left, bottom - top), PAPER)
    ImageDraw.Draw(strip).text((-left, -top), text, font=font, fill=ink)
    return strip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes a sample page as a picture file.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    page, texts = draw_page(options.seed)
    Image.fromarray(page).save(options.file)
    print("\n".join(texts))
