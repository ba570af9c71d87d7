// A program's replicas over time: warm, parked, wanted; and the calls per second that were foreseen.
import { html } from "../html.js";
import { number } from "../format.js";
import { TimeSeries } from "./series.js";

const inState = (...states) => (program) => program?.replicas.filter(({ state }) => states.includes(state)).length;

export function ReplicaSeries({ name, height = 150, windowS }) {
  const of = (read) => (value) => (value.programs[name] ? read(value.programs[name]) : null);
  const lines = [
    { name: "warm", colour: "do-compute", kind: "step", fill: true, column: "num_warm", of: of(inState("ready")) },
    { name: "wanted", colour: "do-queue", kind: "step", dash: [5, 4], column: "num_wanted", of: of(({ num_wanted }) => num_wanted) },
    { name: "loading", colour: "do-moving", kind: "step", column: "num_starting", of: of(inState("loading", "starting")) },
    { name: "parked", colour: "do-inputs", kind: "step", column: "num_parked", of: of(inState("parked", "parking")) },
  ];
  return html`<${TimeSeries} label="Replicas of ${name}" lines=${lines} about=${{ program: name }} format=${number} isWhole=${true} height=${height} windowS=${windowS} />`;
}

export function ForecastSeries({ name, height = 150, windowS }) {
  const of = (field) => (value) => value.programs[name]?.[field];
  const lines = [
    { name: "calls/s", colour: "do-compute", column: "calls_per_s", of: of("calls_per_s"), fill: true },
    { name: "forecast", colour: "do-guess", column: "forecast_per_s", of: of("forecast_per_s"), dash: [5, 4] },
  ];
  return html`<${TimeSeries} label="Calls per second of ${name}, and their forecast" lines=${lines} about=${{ program: name }} format=${number} height=${height} windowS=${windowS} />`;
}
