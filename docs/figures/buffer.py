"""Draw the buffer of the reference implementation step by step: docs/figures/buffer.svg.

The rows appear one after another, three times. With reduced motion all are there at once.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from cocd import reference

N, B, STEPS, GAMMA = 12, 3, 8, 0.7
CELL, LEFT, TOP = 48, 76, 66  # pixels
WIDTH, HEIGHT = LEFT + N * CELL + 16, TOP + STEPS * CELL + 52
SECONDS = 1.4  # for each step
FRAMES = STEPS + 2  # the whole picture stays for two more

STYLE = """
text { font: 15px system-ui, sans-serif; fill: #222; text-anchor: middle }
.title { font-weight: 600 }
.fresh { fill: none; stroke: #c2410c; stroke-width: 3 }
.caption { opacity: 0 }
#caption-end { opacity: 1 }
@media (prefers-reduced-motion: no-preference) {
  g { animation: %ss steps(1) 3 both }
"""


def main() -> None:
    # Every slope of a linear function is 1, so a remembered slope shows its decay alone.
    run = reference.cocd(lambda x: x.sum(), np.zeros(N), lr=0.1, eps=0.1, B=B, m=N, gamma=GAMMA)
    buffer = [state.g for state in islice(run, STEPS)]
    style, body = [STYLE % (SECONDS * FRAMES)], []
    for step, row in enumerate(buffer):
        first = step * B % N
        cells = [label(LEFT - 40, middle(step), f"step {step + 1}")]
        for i, value in enumerate(row):
            # From white to blue; black text stays legible on all of them.
            red, green = round(255 - 130 * value), round(255 - 75 * value)
            place = f'x="{LEFT + i * CELL}" y="{TOP + step * CELL}" width="{CELL}" height="{CELL}"'
            cells.append(f'<rect {place} fill="rgb({red},{green},255)" stroke="#ddd"/>')
            if value:
                cells.append(label(LEFT + (i + 0.5) * CELL, middle(step), f"{value:.2g}"))
        place = f'x="{LEFT + first * CELL}" y="{TOP + step * CELL}" height="{CELL}"'
        cells.append(f'<rect class="fresh" {place} width="{B * CELL}"/>')
        body.append(f'<g id="row-{step}">{"".join(cells)}</g>')
        done = f"Step {step + 1}: probe coordinates {first + 1} to {first + B}"
        done += ", fade the others, move along the whole row." if step else ", move along them."
        body.append(f'<g class="caption" id="caption-{step}">{caption(done)}</g>')
        start, end = (100 * (step + k) / FRAMES for k in (0, 1))
        hidden = f"0% {{ opacity: {0 if step else 1} }}"
        style.append(f"  #row-{step} {{ animation-name: row-{step} }}")
        style.append(f"  #caption-{step} {{ animation-name: caption-{step} }}")
        style.append(f"  @keyframes row-{step} {{ {hidden} {start}%, 100% {{ opacity: 1 }} }}")
        shown = f"{hidden} {start}% {{ opacity: 1 }} {end}%, 100% {{ opacity: 0 }}"
        style.append(f"  @keyframes caption-{step} {{ {shown} }}")
    style.append("  #caption-end { animation-name: end }")
    style.append(
        f"  @keyframes end {{ 0% {{ opacity: 0 }} {100 * STEPS / FRAMES}%, 100% {{ opacity: 1 }} }}"
    )
    style.append("}")
    resting = caption("Outlined slopes are fresh. The others are remembered and fade.")
    body.append(f'<g id="caption-end">{resting}</g>')
    heading = f"The buffer of CoCD: n = {N} coordinates, B = {B} probes per step, γ = {GAMMA}"
    body.append(f'<text class="title" x="{WIDTH / 2}" y="24">{heading}</text>')
    body += [label(LEFT + (i + 0.5) * CELL, TOP - 16, str(i + 1)) for i in range(N)]
    style_sheet, drawing = "\n".join(style), "\n".join(body)
    Path(__file__).with_suffix(".svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        f"<title>{heading}</title>\n<style>{style_sheet}\n</style>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>\n{drawing}\n</svg>\n',
        encoding="utf-8",
    )


def middle(step: int) -> float:
    """Of a row, where its text stands."""
    return TOP + (step + 0.5) * CELL + 5


def label(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}">{text}</text>'


def caption(text: str) -> str:
    return label(WIDTH / 2, HEIGHT - 18, text)


if __name__ == "__main__":
    main()
