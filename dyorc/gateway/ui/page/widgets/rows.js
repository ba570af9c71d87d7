// A long list that creates only the rows in sight. All have the same height, so that their places are known without measuring.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";

const NARROW = "(max-width: 860px)";
const ROW_PX = 38;
const NARROW_ROW_PX = 62;
const BEYOND = 8; // rows drawn above and below what is in sight, for the scrolling that the next frame brings

/** The page itself scrolls, so phones hide their bars. `row` draws one item's cells; `onEnd` is called near the list's end. */
export function Rows({ label, columns, items, keyOf, row, onEnd, onAway }) {
  const body = useRef(null);
  const [isNarrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  const height = isNarrow ? NARROW_ROW_PX : ROW_PX;
  const [[from, to], setSight] = useState([0, 40]);
  const look = useRef(() => {});
  look.current = () => {
    const top = -body.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - BEYOND);
    const last = Math.min(items.length, Math.ceil((top + innerHeight) / height) + BEYOND);
    if (first !== from || last !== to) setSight([first, last]);
    onAway(top > height * 4);
    if (last >= items.length - BEYOND) onEnd();
  };
  useLayoutEffect(() => look.current(), [items, height]);
  useEffect(() => {
    let frame = 0;
    const moved = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        look.current();
      });
    };
    const narrow = matchMedia(NARROW);
    const changed = () => setNarrow(narrow.matches);
    addEventListener("scroll", moved, { passive: true });
    addEventListener("resize", moved);
    narrow.addEventListener("change", changed);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", moved);
      removeEventListener("resize", moved);
      narrow.removeEventListener("change", changed);
    };
  }, []);
  const shown = items.slice(from, Math.min(to, items.length));
  return html`<div class="rows panel" role="table" aria-label=${label} aria-rowcount=${items.length + 1}>
    <div class="rows-head" role="row" aria-rowindex="1">
      ${columns.map(([name, title]) => html`<span role="columnheader" class="c-${name}">${title}</span>`)}
    </div>
    <div role="rowgroup" class="rows-body" ref=${body} style=${{ height: `${items.length * height}px` }} onKeyDown=${(event) => step(event, height)}>
      ${shown.map((item, index) => html`<div class="rows-row" role="row" aria-rowindex=${from + index + 2} key=${keyOf(item)} data-index=${from + index}
        style=${{ transform: `translateY(${(from + index) * height}px)`, height: `${height}px` }}><${row} item=${item} /></div>`)}
    </div>
  </div>`;
}

/** Arrow keys go from row to row. */
function step(event, height) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const at = event.target.closest("[data-index]");
  if (!by || !at) return;
  event.preventDefault();
  const index = Number(at.dataset.index) + by;
  const next = event.currentTarget.querySelector(`[data-index="${index}"] a`);
  if (!next) return;
  next.focus({ preventScroll: true });
  const { top, bottom } = next.getBoundingClientRect();
  if (top < 140 || bottom > innerHeight - 40) scrollBy(0, by * height);
}
