// Explains the server's words to readers who do not know its code.

/** Where a request's time goes: colour and name of each stage, in the order of a request's life. */
export const STAGES = {
  reading: ["do-client", "client sends"],
  admission: ["do-admission", "admission"],
  inputs: ["do-inputs", "waits for inputs"],
  cold: ["do-cold", "program is cold"],
  queue: ["do-queue", "in the queue"],
  moving: ["do-moving", "tensors move"],
  compute: ["do-compute", "program computes"],
  wrong_guess: ["do-wrong", "wrong guess"],
  retried: ["do-wrong", "failed, tried again"],
  lost: ["do-wrong", "lost, computed again"],
  engine: ["do-engine", "server's own time"],
  taking: ["do-client", "client takes parts"],
  writing: ["do-client", "answer is written"],
};

export const stageOf = (kind) => STAGES[kind] ?? ["do-inputs", kind.replaceAll("_", " ")];

/** A cause as a reader would say it. */
export const causeText = (kind) => (kind ? stageOf(kind)[1] : "–");

const FORM_REASONS = {
  queue_emptied: "a replica was free and took all that waited",
  full: "the largest batch size was reached",
  alone: "its program takes one call at a time",
  side_by_side: "a place was free among its program's calls",
  costs_enough: "the largest cost of a batch was reached",
  shared: "several replicas were free and split the queue",
  held: "held for calls that were about to be ready",
  guessed: "a replica was idle and took guesses",
  retry: "repeats a part of a batch that failed",
};

/** Why a batch was formed; the server's own text if it sends one. */
export const reasonText = (reason) => FORM_REASONS[reason?.toLowerCase()] ?? reason ?? "–";
