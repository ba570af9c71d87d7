// Turns a request's record into the rows of its timeline: what each call did from when to when. Plain values, nothing drawn.
import { duration, plural } from "../format.js";

/** Rows in the order in which they began: {kind, key, name, from, to, spans, marks, call | decision | part}. */
export function rowsOf(found) {
  const calls = found.calls.map((call, index) => callRow(call, index, found));
  const decisions = (found.decisions ?? []).map((decision, index) => decisionRow(decision, index, found));
  const parts = (found.parts ?? []).map((part) => partRow(part, found));
  return [...calls, ...decisions, ...parts].sort((a, b) => a.from - b.from || a.rank - b.rank);
}

const MAX_ALIKE = 8;

/** Rows in which more than a few calls of one program, or decisions at one place, are one row {kind: "loop", rows}; it unfolds. */
export function foldLoops(rows) {
  const keyOf = ({ kind, name, call }) => (kind === "part" ? "part" : kind === "call" ? `c ${call.depth} ${name}` : `d ${name}`);
  const groups = new Map();
  for (const row of rows) {
    if (!groups.has(keyOf(row))) groups.set(keyOf(row), []);
    groups.get(keyOf(row)).push(row);
  }
  return rows.flatMap((row) => {
    const alike = groups.get(keyOf(row));
    if (alike.length <= MAX_ALIKE) return [row];
    return alike[0] === row ? [loopRow(alike)] : [];
  });
}

function loopRow(rows) {
  const [first] = rows;
  const name = `${first.kind === "part" ? "part" : first.name} × ${rows.length}`;
  const each = rows.reduce((sum, { from, to }) => sum + to - from, 0) / rows.length;
  const isGuess = ({ guessUntil }) => guessUntil != null;
  const guesses = rows.some(isGuess) ? plural(rows.filter(isGuess).length, "guess") : "";
  const count = (of, text) => (rows.filter(of).length ? `${rows.filter(of).length} ${text}` : "");
  const notes = [`${duration(each)} each`, guesses, count(({ isWrong }) => isWrong, "wrong"), count(({ call }) => call?.outcome === "failed", "failed")];
  return {
    kind: "loop", rank: first.rank, key: `l${first.key}`, name, note: notes.filter(Boolean).join(" · "), rows, from: first.from,
    to: Math.max(...rows.map(({ to }) => to)), spans: rows.flatMap(({ spans }) => spans), marks: [],
  };
}

function callRow(call, index, found) {
  const end = call.ended_ms ?? found.duration_ms;
  const spans = [];
  const add = (kind, from, to, text) => {
    if (from != null && to != null && to > from) spans.push({ kind, from, to, text: `${text}: ${duration(to - from)}` });
  };
  const batches = (call.batches ?? []).map((id) => ({ id, ...found.batches[id] })).filter(({ sent_ms }) => sent_ms != null);
  add("inputs", call.asked_ms, call.queued_ms ?? end, "waits for its inputs");
  let free = call.queued_ms;
  for (const batch of batches) {
    add(call.was_cold ? "cold" : "queue", free, batch.sent_ms, call.was_cold ? "its program is cold" : "in the queue");
    const started = batch.started_ms ?? batch.ended_ms ?? end;
    add("queue", batch.sent_ms, started, "at the replica, behind another batch");
    const done = batch.ended_ms ?? end;
    const gathered = Math.min(done, started + (batch.gather_ms ?? 0));
    add("moving", started, gathered, "inputs are fetched");
    add("compute", gathered, done, "runs");
    free = done;
  }
  if (call.queued_ms != null) add(batches.length ? "engine" : call.was_cold ? "cold" : "queue", free, end, batches.length ? "after its batch" : "in the queue");
  const marks = call.is_guess && call.committed_ms != null ? [{ at: call.committed_ms, kind: "commit", text: "the guess was right" }] : [];
  const guessUntil = call.is_guess ? (call.committed_ms ?? end) : null;
  return { kind: "call", rank: 1, key: `c${index}`, name: call.program, from: call.asked_ms, to: end, spans, marks, guessUntil, isWrong: call.outcome === "squashed", call, batches };
}

function decisionRow(decision, index, found) {
  const to = decision.decided_ms ?? found.duration_ms;
  const followed = Object.entries(decision.followed ?? {});
  const spans = [{ kind: followed.length ? "guess" : "open", from: decision.opened_ms, to, text: `open: ${duration(to - decision.opened_ms)}` }];
  const marks = decision.decided_ms == null ? [] : [{ at: to, kind: "decided", text: `decided: ${decision.outcome}` }];
  return { kind: "decision", rank: 0, key: `d${index}`, name: decision.site.split("/").at(-1), from: decision.opened_ms, to, spans, marks, decision };
}

function partRow(part, found) {
  const to = part.taken_ms ?? found.duration_ms;
  const spans = [{ kind: "client", from: part.sent_ms, to, text: `the client takes it: ${duration(to - part.sent_ms)}` }];
  return { kind: "part", rank: 2, key: `p${part.index}`, name: `part ${part.index}`, from: part.sent_ms, to, spans, marks: [], part };
}

/** A row in words, for its button. */
export function textOf(row) {
  if (row.kind === "loop") return `${row.name}, from ${duration(row.from)} to ${duration(row.to)}: ${row.note}`;
  const spans = row.spans.map(({ text }) => text).join(", ");
  if (row.kind === "call") return `call of ${row.name}${row.call.is_guess ? ", a guess" : ""}, ${row.call.outcome}, from ${duration(row.from)}: ${spans}`;
  if (row.kind === "decision") return `decision ${row.name}, ${row.decision.outcome || "never taken"}, from ${duration(row.from)}: ${spans}`;
  return `${row.name} of the answer, from ${duration(row.from)}: ${spans}`;
}

/** Round steps of time, so that about `wanted` of them fit. */
export function ticksOf(total, wanted) {
  const rough = total / wanted;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough) ?? 1;
  const ticks = [];
  for (let index = 0; index * step <= total * 1.0001; index += 1) ticks.push(index * step);
  return ticks;
}
