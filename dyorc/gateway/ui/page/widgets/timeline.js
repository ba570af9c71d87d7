// A request as a timeline: one row for each call and decision, on the request's own clock; one for all turns of a loop, which unfolds.
// A row opens to show its batches.
import { html, useMemo, useRef, useState } from "../html.js";
import { duration, plural, share, tick } from "../format.js";
import { stageOf } from "../words.js";
import { Alternative, Empty } from "./basics.js";
import { Details } from "./timeline_details.js";
import { foldLoops, rowsOf, textOf, ticksOf } from "./spans.js";

const SHOWN = 200;
const NARROW = "(max-width: 640px)";
const ZOOMS = [1, 2, 4, 8, 16, 32];
const KEYS = { inputs: "waits for inputs", queue: "in the queue", cold: "program is cold", moving: "tensors move", compute: "runs", engine: "server's own time", guess: "guess, not certain yet", wrong: "wrong guess, squashed", client: "client takes parts" };

export function Timeline({ found }) {
  const rows = useMemo(() => rowsOf(found), [found]);
  const folded = useMemo(() => foldLoops(rows), [rows]);
  const [open, setOpen] = useState(() => new Set());
  const [focused, setFocused] = useState(folded[0]?.key);
  const [zoom, setZoom] = useState(1);
  const [isWhole, setWhole] = useState(false);
  const box = useRef(null);
  if (!rows.length) return html`<section class="panel"><${Empty}>It made no calls.<//></section>`;
  const total = Math.max(found.duration_ms, ...rows.map(({ to }) => to), 0.001);
  const unfolded = folded.flatMap((row) => (row.kind === "loop" && open.has(row.key) ? [row, ...row.rows] : [row]));
  const shown = isWhole ? unfolded : unfolded.slice(0, SHOWN);
  const toggle = (key, isOpen) => {
    const next = new Set(open);
    if (isOpen ?? !next.has(key)) next.add(key);
    else next.delete(key);
    setOpen(next);
  };
  return html`<section class="panel" aria-label="Timeline">
    <header><h2>Timeline</h2>
      <span class="controls">
        <span class="note">arrow keys move, Enter opens</span>
        <span class="choice" role="group" aria-label="Zoom">
          <button type="button" aria-label="Zoom out" disabled=${zoom === 1} onClick=${() => setZoom(ZOOMS[ZOOMS.indexOf(zoom) - 1])}>−</button>
          <button type="button" aria-label="Zoom in" disabled=${zoom === ZOOMS.at(-1)} onClick=${() => setZoom(ZOOMS[ZOOMS.indexOf(zoom) + 1])}>+</button>
        </span>
      </span>
    </header>
    <div class="tl" ref=${box} onKeyDown=${(event) => walk(event, { shown, setFocused, toggle })}>
      <div class="tl-inner" style=${{ "--zoom": zoom }}>
        <${Axis} total=${total} zoom=${zoom} end=${found.duration_ms} />
        <${Path} path=${found.path} total=${total} />
        <ol>
          ${shown.map((row) => html`<${Row} key=${row.key} row=${row} total=${total} found=${found} isOpen=${open.has(row.key)} isFocusable=${row.key === focused}
            onFocus=${() => setFocused(row.key)} onToggle=${() => toggle(row.key)} />`)}
        </ol>
      </div>
    </div>
    ${unfolded.length > shown.length && html`<p><button class="button" onClick=${() => setWhole(true)}>Show all ${plural(unfolded.length, "row")}</button></p>`}
    <${Legend} rows=${rows} />
    <${Alternative} summary="The timeline as a table" label="Timeline" head=${["What", "#From", "#To", "Became", "In detail"]}
      rows=${() => rows.map((row) => [row.name, duration(row.from), duration(row.to), row.call?.outcome ?? row.decision?.outcome ?? "", row.spans.map(({ text }) => text).join("; ")])} />
  </section>`;
}

/** Up and down go from row to row, right opens, left closes. */
function walk(event, { shown, setFocused, toggle }) {
  const button = event.target.closest(".tl-label");
  if (!button) return;
  const at = shown.findIndex(({ key }) => key === button.dataset.key);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[event.key];
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    toggle(button.dataset.key, event.key === "ArrowRight");
  } else if (next !== undefined) {
    const row = shown[Math.max(0, Math.min(shown.length - 1, next))];
    setFocused(row.key);
    event.currentTarget.querySelector(`[data-key="${row.key}"]`).focus();
  } else return;
  event.preventDefault();
}

const percent = (at, total) => `${((at / total) * 100).toFixed(4)}%`;

function Axis({ total, zoom, end }) {
  return html`<div class="tl-axis" aria-hidden="true">
    <span></span>
    <div>${ticksOf(total, (matchMedia(NARROW).matches ? 2.5 : 6) * zoom).map((at) => html`<i style=${{ left: percent(at, total) }}><b>${tick(at)}</b></i>`)}
      <i class="end" style=${{ left: percent(end, total) }}></i></div>
  </div>`;
}

/** What the answer waited for at each moment, on the same clock as the rows. */
function Path({ path, total }) {
  if (!path?.length) return null;
  return html`<div class="tl-row tl-path">
    <div class="tl-label"><span class="tl-name">the answer waited for</span></div>
    <div class="tl-track">${path.map((piece) => html`<i class="tl-span" title=${`${stageOf(piece.stage)[1]}: ${duration(piece.to_ms - piece.from_ms)}`}
      style=${{ left: percent(piece.from_ms, total), width: percent(piece.to_ms - piece.from_ms, total), background: `var(--${stageOf(piece.stage)[0]})` }}></i>`)}</div>
  </div>`;
}

function Row({ row, total, found, isOpen, isFocusable, onFocus, onToggle }) {
  return html`<li class="tl-item ${isOpen ? "open" : ""}">
    <div class="tl-row ${row.kind}" onClick=${onToggle}>
      <button class="tl-label" data-key=${row.key} tabindex=${isFocusable ? 0 : -1} aria-expanded=${isOpen} aria-label=${textOf(row)} onFocus=${onFocus}>
        <span class="tl-name">${row.kind === "decision" && html`<span class="diamond" aria-hidden="true">◆</span>`}${row.name}</span>
        <span class="tl-note">${noteOf(row)}</span>
      </button>
      <div class="tl-track">
        ${row.guessUntil != null && html`<i class="tl-guess ${row.isWrong ? "wrong" : ""}" style=${{ left: percent(row.from, total), width: percent(row.guessUntil - row.from, total) }} title=${row.isWrong ? "a guess that was wrong" : "a guess until here"}></i>`}
        ${row.spans.map((span) => html`<i class="tl-span ${span.kind} ${row.isWrong ? "squashed" : ""}" title=${span.text} style=${{ left: percent(span.from, total), width: percent(span.to - span.from, total) }}></i>`)}
        ${row.marks.map((mark) => html`<i class="tl-mark ${mark.kind}" title=${mark.text} style=${{ left: percent(mark.at, total) }}></i>`)}
        ${row.kind === "decision" && row.decision.outcome && html`<b class="tl-outcome ${row.to > total * 0.75 ? "left" : ""}" style=${{ left: percent(row.to, total) }}>${row.decision.outcome}</b>`}
      </div>
    </div>
    ${isOpen && row.kind !== "loop" && html`<${Details} row=${row} found=${found} />`}
  </li>`;
}

function noteOf(row) {
  if (row.kind === "loop") return row.note;
  if (row.kind === "decision") {
    const followed = Object.entries(row.decision.followed ?? {});
    return followed.length ? `guessed ${followed.map(([outcome, p]) => `${outcome} ${share(p)}`).join(", ")}` : "";
  }
  if (row.kind === "part") return "of the answer";
  const size = row.batches.at(-1)?.size;
  const state = { squashed: "wrong guess", withdrawn: "not needed", failed: "failed", waiting: "waits" }[row.call.outcome] ?? (row.call.is_guess ? "guess, right" : "");
  return [state, size && `batch of ${size}`].filter(Boolean).join(" · ");
}

function Legend({ rows }) {
  const used = new Set(rows.flatMap(({ spans, guessUntil, isWrong }) => [...spans.map(({ kind }) => kind), guessUntil != null && "guess", isWrong && "wrong"]));
  return html`<ul class="keys" aria-hidden="true">
    ${Object.entries(KEYS).filter(([kind]) => used.has(kind)).map(([kind, text]) => html`<li class="key" key=${kind}><i class="tl-key ${kind}"></i>${text}</li>`)}
  </ul>`;
}
