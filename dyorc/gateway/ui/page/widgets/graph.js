// A workflow as a graph: dagre finds the places, this draws them as SVG. The places change only with the graph's shape, never with
// its figures, so that nothing jumps while it is looked at.
import { Graph as Layout, layout } from "dagre";
import { html, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { duration, number, share } from "../format.js";
import { to } from "../route.js";
import { Alternative } from "./basics.js";

const MIN_SCALE = 0.78; // smaller, and its text cannot be read
const CHAR_PX = 7.6;

/** The graph as `GET /graph` has it; `programs` are the live values by name. */
export function Graph({ graph, programs }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    setWidth(box.current.clientWidth); // before anything is painted
    const sizes = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, []);
  const shape = shapeOf(graph);
  const across = useMemo(() => place(graph, "LR"), [shape]);
  const down = useMemo(() => place(graph, "TB"), [shape]);
  const placed = across.width * MIN_SCALE <= width ? across : down;
  const scale = width ? Math.min(1, Math.max(MIN_SCALE, width / placed.width)) : 1;
  const most = Math.max(1e-9, ...graph.edges.map(({ per_s }) => per_s));
  return html`<div class="graph" ref=${box} tabindex=${scale === MIN_SCALE ? 0 : undefined}>
      ${width > 0 &&
      html`<svg width=${placed.width * scale} height=${placed.height * scale} viewBox="0 0 ${placed.width} ${placed.height}"
        role="group" aria-label="Workflow ${graph.workflow} as a graph">
        ${graph.edges.map((edge, index) => html`<${Edge} key=${`e${index}`} edge=${edge} place=${placed.edges[index]} most=${most} />`)}
        ${graph.edges.map((edge, index) => html`<${EdgeLabel} key=${`l${index}`} edge=${edge} place=${placed.edges[index]} most=${most} isDown=${placed === down} />`)}
        ${graph.nodes.map((node) => html`<${Node} key=${node.id} node=${node} place=${placed.nodes.get(node.id)} live=${programs?.[node.name]} />`)}
      </svg>`}
    </div>
    <${Alternative} summary="The graph as a table" label="edges of ${graph.workflow}" head=${["From", "To", "Outcome", "#Share", "#Calls/s", "#Guessed"]}
      rows=${() => graph.edges.map((edge) => [nameOf(graph, edge.source), nameOf(graph, edge.target), edge.label || "–", share(edge.share), number(edge.per_s), share(edge.guessed_share)])} />`;
}

const shapeOf = ({ nodes, edges }) =>
  JSON.stringify([nodes.map(({ id, kind, name }) => [id, kind, name]), edges.map((edge) => [edge.source, edge.target, edge.label, isGuessed(edge)])]);

const isGuessed = ({ guessed_share }) => guessed_share > 0.0005;

const nameOf = (graph, id) => graph.nodes.find((node) => node.id === id)?.name ?? id;

const shortSite = (text) => text.split("/").at(-1);

function sizeOf({ kind, name }) {
  if (kind === "program") return { width: Math.max(136, name.length * CHAR_PX + 36), height: 62 };
  if (kind === "decision") return { width: Math.max(120, shortSite(name).length * CHAR_PX + 56), height: 58 };
  return { width: Math.max(70, name.length * CHAR_PX + 30), height: 36 };
}

function place(graph, rankdir) {
  const found = new Layout({ multigraph: true });
  found.setGraph({ rankdir, nodesep: 30, ranksep: rankdir === "TB" ? 26 : 22, edgesep: 22, marginx: 10, marginy: 12 });
  for (const node of graph.nodes) found.setNode(node.id, sizeOf(node));
  graph.edges.forEach((edge, index) => {
    const width = Math.max(edge.label ? edge.label.length * CHAR_PX + 46 : 50, isGuessed(edge) ? 150 : 0);
    found.setEdge(edge.source, edge.target, { width, height: edge.label ? 50 : 34, labelpos: "c" }, String(index));
  });
  layout(found);
  const { width, height } = found.graph();
  const edges = graph.edges.map((edge, index) => found.edge(edge.source, edge.target, String(index)));
  return { width: Math.ceil(width), height: Math.ceil(height), edges, nodes: new Map(graph.nodes.map(({ id }) => [id, found.node(id)])) };
}

/** A smooth line through the points that the layout gave. */
function pathOf(points) {
  const [first, ...rest] = points;
  let text = `M${first.x},${first.y}`;
  for (let index = 0; index < rest.length - 1; index += 1) {
    const [at, next] = [rest[index], rest[index + 1]];
    const isLast = index === rest.length - 2;
    text += `Q${at.x},${at.y} ${isLast ? next.x : (at.x + next.x) / 2},${isLast ? next.y : (at.y + next.y) / 2}`;
  }
  return rest.length === 1 ? `${text}L${rest[0].x},${rest[0].y}` : text;
}

const thicknessOf = (edge, most) => (edge.per_s > 0 ? 1.5 + 6.5 * (edge.per_s / most) : 1);

const mainText = (edge) => (edge.label ? `${edge.label} ${share(edge.share)}` : `${number(edge.per_s)}/s`);

function Edge({ edge, place, most }) {
  const thickness = thicknessOf(edge, most);
  const path = pathOf(place.points);
  const [end, before] = [place.points.at(-1), place.points.at(-2)];
  const angle = (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI;
  return html`<g class="g-edge ${edge.per_s > 0 ? "busy" : ""}" data-edge="${edge.source}→${edge.target}">
    <title>${`${mainText(edge)}; ${number(edge.per_s)} calls/s; ${share(edge.guessed_share)} of them as a guess`}</title>
    <path d=${path} stroke-width=${thickness.toFixed(2)} />
    ${isGuessed(edge) && html`<path class="guessed" d=${path} stroke-width=${Math.max(1.6, thickness * 0.55).toFixed(2)} />`}
    <polygon class="g-tip" points="1,0 -10,-5.5 -10,5.5" transform="translate(${end.x},${end.y}) rotate(${angle}) scale(${(0.75 + thickness * 0.07).toFixed(2)})" />
  </g>`;
}

/** An edge's label, on a background: above all lines, so that no line goes through it. */
function EdgeLabel({ edge, place, most, isDown }) {
  const main = mainText(edge);
  const sub = [edge.label && `${number(edge.per_s)}/s`, isGuessed(edge) && `${share(edge.guessed_share)} guessed`];
  const below = sub.filter(Boolean).join(" · ");
  const base = isDown ? place.y + (below ? 11 : 4) : place.y - thicknessOf(edge, most) / 2 - 7;
  const top = base - (below ? 14 : 0);
  const width = Math.max(main.length * CHAR_PX, below.length * 6.6) + 6;
  return html`<g class="g-label" data-label="${edge.source}→${edge.target}">
    ${isDown && html`<rect x=${place.x - width / 2} y=${top - 12} width=${width} height=${base - top + 16} rx="4" />`}
    <text x=${place.x} y=${top}>${main}</text>
    <text class="sub" x=${place.x} y=${base}>${below}</text>
  </g>`;
}

function Node({ node, place, live }) {
  const { x, y, width, height } = place;
  const [left, top] = [x - width / 2, y - height / 2];
  if (node.kind === "decision") {
    const corners = `${left},${y} ${left + 22},${top} ${left + width - 22},${top} ${left + width},${y} ${left + width - 22},${top + height} ${left + 22},${top + height}`;
    return html`<g class="g-node decision" data-node=${node.id}>
      <polygon points=${corners} />
      <text x=${x} y=${y - 3}>${shortSite(node.name)}</text>
      <text class="sub" x=${x} y=${y + 14}>decision</text>
    </g>`;
  }
  if (node.kind !== "program") {
    return html`<g class="g-node ${node.kind}" data-node=${node.id}>
      <rect x=${left} y=${top} width=${width} height=${height} rx=${height / 2} />
      <text x=${x} y=${y + 5}>${node.name}</text>
    </g>`;
  }
  const each = node.per_request > 1.05 ? ` · ×${number(node.per_request)}` : "";
  const waiting = live?.num_queued ? `${live.num_queued} waiting` : live ? timeOf(live) : "";
  return html`<g class="g-node program" data-node=${node.id}>
    <a href=${to("programs", node.name)} aria-label="Program ${node.name}, ${number(node.calls_per_s)} calls per second">
      <rect x=${left} y=${top} width=${width} height=${height} rx="9" />
      <text x=${x} y=${y - 10}>${node.name}</text>
      <text class="sub" x=${x} y=${y + 6}>${number(node.calls_per_s)} calls/s${each}</text>
      <text class="sub" x=${x} y=${y + 21}>${waiting}</text>
    </a>
  </g>`;
}

function timeOf(live) {
  const fit = live.latency_fit;
  return fit?.base_ms == null ? (live.state ?? "") : `${duration(fit.base_ms + fit.per_call_ms)} alone`;
}
