"""What a picture of a fire is made of: colours, shaded ground, soft-edged masks, markers, the wind, text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from scipy.ndimage import gaussian_filter

from rayfish.worlds.wildfire.fire import codes

Colour = tuple[int, int, int]

PAPER: Colour = (18, 21, 26)
"""The ground of the picture around the map."""
RULE: Colour = (52, 58, 68)
TEXT: Colour = (238, 240, 244)
MUTED: Colour = (146, 154, 167)
ACCENT: Colour = (255, 158, 54)

LINE_COLOURS: dict[int, Colour] = {
    codes.FIRELINE: (255, 247, 232),
    codes.SCRATCHLINE: (214, 150, 255),
    codes.WETLINE: (64, 200, 255),
}
"""Control lines by code: bare soil, scratched ground, wetted fuel."""

CASING: Colour = (24, 22, 24)
CHAR: Colour = (56, 53, 54)
GLOW: Colour = (255, 104, 22)
GLOW_STRENGTH = [round(170 * (v / 255) ** 0.8) for v in range(256)]
FLAME: tuple[tuple[float, Colour], ...] = (
    (0.24, (120, 12, 8)),
    (0.36, (204, 32, 12)),
    (0.50, (244, 80, 16)),
    (0.66, (255, 140, 26)),
    (0.84, (255, 204, 62)),
    (1.00, (255, 243, 168)),
)
"""Heat from 0 to 1 and its colour."""

AGENT_COLOURS: tuple[Colour, ...] = (
    (38, 132, 255),
    (0, 168, 132),
    (226, 62, 140),
    (122, 92, 240),
    (0, 150, 190),
    (196, 88, 20),
    (92, 140, 20),
    (90, 98, 114),
)
"""Markers of agents, by their place in the list."""

FUEL_GROUPS: tuple[tuple[str, Colour, tuple[int, ...]], ...] = (
    ("Grass", (204, 192, 144), (*range(1, 4), *range(101, 110))),
    ("Grass, shrub", (172, 172, 122), tuple(range(121, 125))),
    ("Shrub", (134, 150, 106), (*range(4, 8), *range(141, 150))),
    ("Timber", (84, 114, 94), (*range(8, 11), *range(161, 166), *range(181, 190))),
    ("Slash", (152, 126, 102), (*range(11, 14), *range(201, 205))),
    ("Road, town", (160, 163, 170), (91,)),
    ("Snow, ice", (232, 238, 245), (92,)),
    ("Farmland", (206, 176, 104), (93,)),
    ("Water", (82, 132, 172), (98,)),
    ("Bare ground", (186, 174, 158), (99,)),
)
"""What the legend calls fuels, the colour of each, and the numbers of the fuel models it stands for."""

ROAD, WATER, BARE = 91, 98, 99
FINEST = 5.0
NO_FUEL: Colour = (150, 158, 118)


def fuel_colours(
    fuel: np.ndarray | None, shape: tuple[int, int]
) -> tuple[np.ndarray, list[tuple[str, Colour]]]:
    """The colour of every cell, float [H, W, 3], and the legend of the groups that occur."""
    if fuel is None:
        return np.broadcast_to(np.array(NO_FUEL, float), (*shape, 3)).copy(), []
    numbers = np.where((fuel >= 0) & (fuel < 256), fuel, BARE).astype(np.int64)
    table = np.tile(np.array(FUEL_GROUPS[-1][1], float), (256, 1))
    for _, colour, members in FUEL_GROUPS:
        for place, number in enumerate(members):
            # models of one group differ a little in lightness, so that their borders stay visible
            table[number] = np.array(colour) * (1.05 - 0.10 * place / max(len(members) - 1, 1))
    present = set(np.unique(numbers).tolist())
    legend = [(name, colour) for name, colour, members in FUEL_GROUPS if present.intersection(members)]
    return table[numbers], legend


def enlarge(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A float layer [H, W] at the map's `size` (width, height) in pixels, without steps."""
    image = Image.fromarray(np.ascontiguousarray(values, dtype=np.float32))
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC), dtype=float)


def relief(elevation: np.ndarray, cell_ft: float, size: tuple[int, int]) -> np.ndarray:
    """Light on the ground, about 1 on the flat: two suns from the west, steepness brought to one scale."""
    pixels = size[0] / elevation.shape[1]
    ground = gaussian_filter(enlarge(elevation, size), max(0.8 * pixels, 2.2), mode="nearest", truncate=2.5)
    # one row or column more on every side, so that the smallest maps have a slope too
    slope_y, slope_x = (g[1:-1, 1:-1] for g in np.gradient(np.pad(ground, 1, mode="edge"), cell_ft / pixels))
    steep = float(np.quantile(np.hypot(slope_x, slope_y), 0.95))
    # gentle hills are raised and rough ones flattened, so that every landscape reads; a plain stays a plain
    lift = min(0.75 / steep, 12.0) if steep > 1e-6 else 1.0
    slope_x, slope_y = slope_x * lift, slope_y * lift
    length = np.sqrt(1.0 + slope_x**2 + slope_y**2)
    light = np.zeros_like(ground)
    for azimuth, altitude, share in ((315.0, 45.0, 0.7), (255.0, 60.0, 0.3)):
        a, h = math.radians(azimuth), math.radians(altitude)
        east, south, up = math.sin(a) * math.cos(h), -math.cos(a) * math.cos(h), math.sin(h)
        light += share * (up - east * slope_x - south * slope_y) / (length * up)
    span = float(np.ptp(ground))
    height = (ground - ground.min()) / span - 0.5 if span > 1e-6 else np.zeros_like(ground)
    return np.asarray(np.clip(light + 0.10 * height, 0.25, 1.35))


def background(
    elevation: np.ndarray, fuel: np.ndarray | None, cell_ft: float, size: tuple[int, int]
) -> tuple[Image.Image, Image.Image, list[tuple[str, Colour]]]:
    """The ground as it is, the same ground burned, and the legend of its fuels."""
    pixels = size[0] / elevation.shape[1]
    # few pixels per cell are enough for soft ground: large cells are worked out small and then enlarged
    fine = min(1.0, FINEST / pixels)
    small = (max(round(size[0] * fine), 1), max(round(size[1] * fine), 1))
    soft = max(0.6 * pixels * fine, 0.8)
    colours, legend = fuel_colours(fuel, elevation.shape)
    light = enlarge(relief(elevation, cell_ft, small), size)[..., None]
    tints = [
        gaussian_filter(enlarge(colours[..., i], small), soft, mode="nearest", truncate=2.5) for i in range(3)
    ]
    tint = np.stack([enlarge(band, size) for band in tints], axis=-1)
    # a fixed grain hides the steps between the few colours of a GIF
    grain = np.random.default_rng(0).normal(size=(size[1], size[0], 1))
    ground = tint * (0.18 + 0.72 * light) * (1 + 0.014 * grain)
    burned = np.array(CHAR) * (0.16 + 0.84 * light**2) * (1 + 0.03 * grain) + 0.035 * tint
    picture, charred = picture_of(ground), picture_of(burned)
    if fuel is not None:
        for number, colour, rim in (
            (ROAD, FUEL_GROUPS[5][1], (84, 82, 80)),
            (WATER, FUEL_GROUPS[8][1], (46, 88, 128)),
        ):
            cells = np.asarray(fuel) == number
            if cells.any():
                field, window = field_of(cells, size)
                field = field.filter(ImageFilter.GaussianBlur(0.42 * pixels))
                for target in (picture, charred):
                    target.paste(rim, window.at, field.point(edge(0.28, pixels)))
                    target.paste(colour, window.at, field.point(edge(0.40, pixels)))
    return picture, charred, legend


def picture_of(colours: np.ndarray) -> Image.Image:
    """An image from float colours [H, W, 3] of 0 to 255."""
    return Image.fromarray(np.clip(colours + 0.5, 0, 255).astype(np.uint8))


@dataclass(frozen=True)
class Window:
    """The part of the map that a layer touches: work is done there alone."""

    left: int  # first pixel column, and so on; `pixels` are pixels per cell
    top: int
    right: int
    bottom: int
    pixels: tuple[float, float]

    @classmethod
    def around(cls, cells: np.ndarray, size: tuple[int, int], reach: int) -> Window:
        """Around all cells that are not zero, with `reach` pixels to every side."""
        pixels = (size[0] / cells.shape[1], size[1] / cells.shape[0])
        bounds = []
        for axis, (per_cell, end) in enumerate(zip(pixels, size, strict=True)):
            hits = np.flatnonzero(cells.any(axis=axis))
            first, last = int(hits[0] * per_cell), math.ceil((hits[-1] + 1) * per_cell)
            bounds.append((max(first - reach, 0), min(last + reach, end)))
        (left, right), (top, bottom) = bounds
        return cls(left, top, right, bottom, pixels)

    @property
    def at(self) -> tuple[int, int]:
        """Its corner on the map."""
        return (self.left, self.top)

    @property
    def size(self) -> tuple[int, int]:
        """Its width and height in pixels."""
        return (self.right - self.left, self.bottom - self.top)

    def enlarge(self, cells: np.ndarray, how: Image.Resampling, shrink: int = 1) -> Image.Image:
        """8-bit cells [H, W] of the whole map as an image of this window, `shrink` times smaller if asked."""
        (across, down), (width, height) = self.pixels, self.size
        box = (self.left / across, self.top / down, self.right / across, self.bottom / down)
        return Image.fromarray(cells).resize((-(-width // shrink), -(-height // shrink)), how, box=box)


def field_of(values: np.ndarray, size: tuple[int, int]) -> tuple[Image.Image, Window]:
    """Cells [H, W] of 0 to 1 as a soft 8-bit field, in the window where there is something."""
    cells = np.asarray(values * 255, dtype=np.uint8)
    window = Window.around(cells, size, reach=2 + math.ceil(1.5 * size[0] / cells.shape[1]))
    return window.enlarge(cells, Image.Resampling.BICUBIC), window


@lru_cache(maxsize=64)
def edge(level: float, pixels: float) -> list[int]:
    """A table that cuts a soft field at `level`, with an edge of about one pixel."""
    half = min(0.8 / pixels, level, 1 - level)
    steps = np.clip((np.arange(256) / 255 - (level - half)) / (2 * half), 0, 1)
    return [round(float(255 * v)) for v in steps * steps * (3 - 2 * steps)]


@lru_cache(maxsize=1)
def flame_palette() -> list[int]:
    """256 colours of heat, flat list as a palette wants it."""
    at = [h * 255 for h, _ in FLAME]
    bands = [np.interp(np.arange(256), at, [colour[band] for _, colour in FLAME]) for band in range(3)]
    return np.stack(bands, axis=-1).round().astype(int).ravel().tolist()


@lru_cache(maxsize=32)
def font(size: int) -> Any:
    """Pillow's own scalable font."""
    return ImageFont.load_default(size)


def write(
    draw: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    size: int,
    colour: Colour = TEXT,
    *,
    anchor: str = "ls",
) -> None:
    """Text that begins at `at` on its baseline, or lies about it as Pillow's `anchor` says."""
    draw.text(at, text, fill=colour, font=font(size), anchor=anchor)


def shorten(text: str, size: int, width: float) -> str:
    """`text`, cut with dots where it is wider than `width` pixels."""
    if font(size).getlength(text) <= width:
        return text
    while text and font(size).getlength(text + "...") > width:
        text = text[:-1]
    return text.rstrip() + "..."


@lru_cache(maxsize=256)
def marker(number: str, place: int, diameter: int) -> Image.Image:
    """An agent: a coloured disc with a white ring, a soft shadow and its number (left out when too small)."""
    k, pad = 4, 3
    side = (diameter + 2 * pad) * k
    image = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    low, high = pad * k, side - pad * k - 1
    for grow, alpha in ((2 * k, 40), (k, 90)):
        draw.ellipse((low - grow, low - grow, high + grow, high + grow), fill=(0, 0, 0, alpha))
    draw.ellipse((low, low, high, high), fill=(255, 255, 255, 255))
    ring = max(round(0.11 * diameter * k), k)
    colour = AGENT_COLOURS[place % len(AGENT_COLOURS)]
    draw.ellipse((low + ring, low + ring, high - ring, high - ring), fill=(*colour, 255))
    if diameter >= 14:
        size = round(diameter * k * (0.62 if len(number) == 1 else 0.46))
        draw.text((side / 2, side / 2), number, fill="white", font=font(size), anchor="mm")
    return image.resize((side // k, side // k), Image.Resampling.BOX)


def trail(picture: Image.Image, path: Sequence[tuple[float, float]], width: float, colour: Colour) -> None:
    """A path through `picture` in pixels, oldest first, that fades towards its beginning."""
    if len(path) < 2:
        return
    k, pad = 3, width + 3
    xs, ys = [x for x, _ in path], [y for _, y in path]
    left, top = max(int(min(xs) - pad), 0), max(int(min(ys) - pad), 0)
    right, bottom = min(int(max(xs) + pad), picture.width), min(int(max(ys) + pad), picture.height)
    ink = Image.new("L", ((right - left) * k, (bottom - top) * k))
    draw = ImageDraw.Draw(ink)
    points = [((x - left) * k, (y - top) * k) for x, y in path]
    radius = width * k / 2
    for i, (start, end) in enumerate(pairwise(points), start=1):
        strength = round(225 * (i / (len(points) - 1)) ** 1.3)
        draw.line((*start, *end), fill=strength, width=round(width * k))
        x, y = end
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=strength)
    picture.paste(colour, (left, top), ink.reduce(k))


@lru_cache(maxsize=512)
def wind_rose(degrees: int | None, side: int) -> Image.Image:
    """A compass with an arrow towards `degrees` (clockwise from North); without an arrow when it is calm."""
    k = 4
    image = Image.new("RGB", (side * k, side * k), PAPER)
    draw = ImageDraw.Draw(image)
    centre, radius = side * k / 2, side * k / 2 - 9 * k
    draw.ellipse((centre - radius, centre - radius, centre + radius, centre + radius), outline=RULE, width=k)
    for quarter, name in enumerate("NESW"):
        a = math.radians(90 * quarter)
        x, y = centre + math.sin(a) * radius, centre - math.cos(a) * radius
        draw.ellipse((x - 7 * k, y - 7 * k, x + 7 * k, y + 7 * k), fill=PAPER)
        draw.text((x, y), name, fill=TEXT if name == "N" else MUTED, font=font(11 * k), anchor="mm")
    if degrees is None:
        draw.ellipse((centre - 2 * k, centre - 2 * k, centre + 2 * k, centre + 2 * k), fill=MUTED)
    else:
        draw.polygon(arrow(centre, centre, 0.66 * radius, degrees), fill=ACCENT)
    return image.resize((side, side), Image.Resampling.BOX)


def arrow(x: float, y: float, reach: float, degrees: float) -> list[tuple[float, float]]:
    """The corners of an arrow through (x, y) towards `degrees`, from its tip round."""
    side = ((0.12, 0.52), (0.12, 0.16), (-1.0, 0.16))
    shape = [(1.0, 0.0), *side, *((forward, -across) for forward, across in reversed(side))]
    a = math.radians(degrees)
    ahead, right = (math.sin(a), -math.cos(a)), (math.cos(a), math.sin(a))
    return [
        (x + reach * (f * ahead[0] + s * right[0]), y + reach * (f * ahead[1] + s * right[1]))
        for f, s in shape
    ]


def scale_bar(cell_ft: float, pixels: float, most: float) -> tuple[float, str]:
    """The longest round distance that fits into `most` pixels: its length in pixels and its name."""
    feet = cell_ft / pixels * most
    miles = feet / 5280
    unit, reach = (5280.0, miles) if miles >= 1 else (1.0, feet)
    power = float(10.0 ** math.floor(math.log10(reach)))
    round_one = max(step * power for step in (1, 2, 5) if step * power <= reach * (1 + 1e-9))
    name = f"{round_one:g} mi" if unit > 1 else f"{round_one:,.0f} ft"
    return round_one * unit / cell_ft * pixels, name if round_one >= 1 else f"{round_one:g} ft"


def clock(minutes: float) -> str:
    """Minutes of fire time as hours and minutes, with days where there are any: `02:45`, `1 d 02:45`."""
    whole = int(minutes)
    days, rest = divmod(whole, 24 * 60)
    return f"{days} d {rest // 60:02d}:{rest % 60:02d}" if days else f"{rest // 60:02d}:{rest % 60:02d}"


def figure(value: Any) -> str:
    """A number as people read it: thousands apart, three digits that count; other values as text."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    return str(value)


def heading(degrees: float) -> str:
    """The name of a direction: N, NE, E, ..."""
    return ("N", "NE", "E", "SE", "S", "SW", "W", "NW")[round(degrees % 360 / 45) % 8]


MARGIN, HEADER, FOOTER, GAP, PANEL = 20, 58, 44, 26, 204
"""Pixels around the map, above it, below it, between it and the panel, and the panel's width."""
ROW = 22
FIGURE_ROWS = 6
TIME_HEIGHT, WIND_HEIGHT = 74, 112

Legend = Sequence[tuple[str, Colour | str]]
"""Names, each with its colour or with the kind of its swatch."""


@dataclass(frozen=True)
class Layout:
    """Where things are on a picture, in pixels: (x, y) of the map and of the blocks of the panel."""

    width: int
    height: int
    map_at: tuple[int, int]
    time_at: tuple[int, int]
    wind_at: tuple[int, int]
    figures_at: tuple[int, int]
    figure_rows: int
    legend_at: tuple[int, int]


def layout(map_width: int, map_height: int, fuels: Legend) -> Layout:
    """The panel on the right of the map, or below it where the map is much wider than high."""
    legend_height = 26 + math.ceil(len(legend_entries(fuels)) / 2) * ROW
    above = TIME_HEIGHT + WIND_HEIGHT
    map_at = (MARGIN, HEADER)
    if map_width > 1.6 * map_height:
        width = max(map_width, 3 * PANEL + 2 * GAP) + 2 * MARGIN
        top = HEADER + map_height + FOOTER + 10
        middle, last = (width - PANEL) // 2, width - MARGIN - PANEL
        rows = max(above, legend_height)
        return Layout(
            width=width,
            height=top + rows + MARGIN,
            map_at=map_at,
            time_at=(MARGIN, top),
            wind_at=(MARGIN, top + TIME_HEIGHT),
            figures_at=(middle, top),
            figure_rows=rows // ROW,
            legend_at=(last, top),
        )
    x = MARGIN + map_width + GAP
    content = max(map_height, above + FIGURE_ROWS * ROW + 20 + legend_height)
    figures = HEADER + above
    legend = HEADER + content - legend_height
    return Layout(
        width=x + PANEL + MARGIN,
        height=HEADER + content + FOOTER,
        map_at=map_at,
        time_at=(x, HEADER),
        wind_at=(x, HEADER + TIME_HEIGHT),
        figures_at=(x, figures),
        figure_rows=(legend - figures - 20) // ROW,
        legend_at=(x, legend),
    )


def legend_entries(fuels: Legend) -> Legend:
    """What a legend lists: the fire, the lines, the agents, then the fuels that occur."""
    lines = [(codes.NAMES[code].capitalize(), colour) for code, colour in LINE_COLOURS.items()]
    return [("Burning", "flame"), ("Burned", CHAR), *lines, ("Agent", "agent"), *fuels]


def draw_legend(picture: Image.Image, at: tuple[int, int], entries: Legend, columns: int, width: int) -> None:
    """Swatches with their names, in `columns` columns over `width` pixels, read downwards."""
    draw = ImageDraw.Draw(picture)
    label(draw, at, "Legend")
    rows = math.ceil(len(entries) / columns)
    for i, (name, colour) in enumerate(entries):
        x, y = at[0] + (i // rows) * width // columns, at[1] + 22 + (i % rows) * ROW
        picture.paste(swatch(colour), (x, y))
        write(draw, (x + 22, y + 12), name, 13)


@lru_cache(maxsize=64)
def swatch(colour: Colour | str, side: int = 15) -> Image.Image:
    """A small field of a colour with round corners, of flames, or an agent's disc."""
    k = 4
    image = Image.new("RGB", (side * k, side * k), PAPER)
    box = (0, 0, side * k - 1, side * k - 1)
    mask = Image.new("L", image.size)
    draw = ImageDraw.Draw(mask)
    if colour == "agent":
        draw.ellipse(box, fill=255)
        image.paste((255, 255, 255), mask=mask)
        inner = Image.new("L", image.size)
        ImageDraw.Draw(inner).ellipse((2 * k, 2 * k, (side - 2) * k, (side - 2) * k), fill=255)
        image.paste(AGENT_COLOURS[0], mask=inner)
        return image.resize((side, side), Image.Resampling.BOX)
    draw.rounded_rectangle(box, radius=3 * k, fill=255)
    if colour == "flame":
        ramp = Image.fromarray(np.tile(np.linspace(95, 250, side * k).astype(np.uint8), (side * k, 1)))
        ramp.putpalette(flame_palette())
        image.paste(ramp.convert("RGB"), mask=mask)
    else:
        image.paste(colour, mask=mask)
        if colour == CHAR:
            draw.rounded_rectangle((k, k, (side - 1) * k - 1, (side - 1) * k - 1), radius=2 * k, fill=0)
            image.paste((92, 88, 88), mask=mask)
    return image.resize((side, side), Image.Resampling.BOX)


def label(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str) -> None:
    """The small heading of a block."""
    write(draw, (at[0], at[1] + 9), text, 12, MUTED)


def write_clock(draw: ImageDraw.ImageDraw, at: tuple[int, int], minutes: float) -> None:
    """The block of the clock."""
    label(draw, at, "Clock")
    write(draw, (at[0], at[1] + 46), clock(minutes), 34)


def draw_wind(picture: Image.Image, at: tuple[int, int], wind: tuple[float, float]) -> None:
    """The block of the wind: a compass with an arrow, the speed and where it blows to."""
    draw = ImageDraw.Draw(picture)
    speed, degrees = wind
    label(draw, at, "Wind")
    calm = speed < 0.05
    picture.paste(wind_rose(None if calm else round(degrees) % 360, 80), (at[0] - 4, at[1] + 14))
    x, y = at[0] + 92, at[1]
    if calm:
        write(draw, (x, y + 60), "calm", 18)
        return
    number = f"{speed:.0f}" if speed >= 10 or abs(speed - round(speed)) < 0.05 else f"{speed:.1f}"
    write(draw, (x, y + 53), f"{number} mph", 22)
    write(draw, (x, y + 74), f"toward {heading(degrees)}, {round(degrees) % 360}°", 13, MUTED)


def write_figures(draw: ImageDraw.ImageDraw, at: tuple[int, int], rows: Sequence[tuple[str, Any]]) -> None:
    """Names on the left, values on the right, which have most of the room; both are cut where too long."""
    x, y = at
    for row, (name, value) in enumerate(rows):
        text = shorten(figure(value), 14, 0.7 * PANEL)
        baseline = y + 15 + row * ROW
        room = PANEL - font(14).getlength(text) - 12
        write(draw, (x, baseline), shorten(str(name), 14, room), 14, MUTED)
        write(draw, (x + PANEL, baseline), text, 14, anchor="rs")


@lru_cache(maxsize=360)
def small_arrow(degrees: int) -> Image.Image:
    """The wind of one map of a mosaic."""
    image = Image.new("RGB", (72, 72), PAPER)
    ImageDraw.Draw(image).polygon(arrow(36, 36, 32, degrees), fill=ACCENT)
    return image.resize((18, 18), Image.Resampling.BOX)
