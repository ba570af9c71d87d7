"""The frame of a chart: its axes, their ticks and names, and reference lines."""

from dataclasses import dataclass

from loadgen.report.scales import Scale
from loadgen.report.svg import element, text, text_px


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The rectangle for the data, in pixels from the picture's upper left corner.

    Attributes:
        x, y: The horizontal and vertical scales; `x` is None for bars, which stand in groups.
        left, top, width, height: Its place.
        x_name, y_name: The axes' names, with units.
    """

    x: Scale | None
    y: Scale
    left: float
    top: float
    width: float
    height: float
    x_name: str
    y_name: str

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Returns the position of a pair of values."""
        assert self.x is not None, "bars have no horizontal scale"
        return self.left + self.x.at(x) * self.width, self.height_of(y)

    def height_of(self, y: float) -> float:
        """Returns the vertical position of a value."""
        return self.top + (1 - self.y.at(y)) * self.height

    def axes(self) -> str:
        """Returns everything except the data."""
        bottom, right = self.top + self.height, self.left + self.width
        drawn = [self._horizontal(self.height_of(tick), self.y.label(tick)) for tick in self.y.ticks]
        if self.x is not None:
            drawn += [self._vertical(tick, self.x) for tick in self.x.ticks]
        drawn.append(element("path", d=f"M{self.left:.1f} {self.top:.1f}V{bottom:.1f}H{right:.1f}", class_="axis"))
        drawn.append(text(self.x_name, self.left + self.width / 2, bottom + 38, anchor="middle", class_="name"))
        widest = max(text_px(self.y.label(tick)) for tick in self.y.ticks)
        name_x = max(self.left - widest - 18, 12.0)
        drawn.append(text(self.y_name, name_x, self.top + self.height / 2, anchor="middle", class_="name", turned=True))
        return element("g", *drawn)

    def across(self, y: float, label: str) -> str:
        """Returns a horizontal line at a value, with its name at the left; nothing if it lies outside of the picture."""
        if not self.y.low <= y <= self.y.high:
            return ""
        at = self.height_of(y)
        return element(
            "g",
            element("path", d=f"M{self.left:.1f} {at:.1f}h{self.width:.1f}", class_="mark"),
            text(label, self.left + 5, at - 5, class_="marked") if label else "",
        )

    def upright(self, x: float, label: str) -> str:
        """Returns a vertical line of the same kind."""
        if self.x is None or not self.x.low <= x <= self.x.high:
            return ""
        at, _ = self.point(x, self.y.low)
        return element(
            "g",
            element("path", d=f"M{at:.1f} {self.top:.1f}v{self.height:.1f}", class_="mark"),
            text(label, at, self.top - 6, anchor="middle", class_="marked"),
        )

    def _horizontal(self, at: float, label: str) -> str:
        grid = element("path", d=f"M{self.left:.1f} {at:.1f}h{self.width:.1f}", class_="grid")
        return grid + text(label, self.left - 7, at + 4, anchor="end")

    def _vertical(self, tick: float, scale: Scale) -> str:
        at = self.left + scale.at(tick) * self.width
        grid = element("path", d=f"M{at:.1f} {self.top:.1f}v{self.height:.1f}", class_="grid")
        return grid + text(scale.label(tick), at, self.top + self.height + 18, anchor="middle")
