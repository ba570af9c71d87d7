// Asks the server. Addresses are relative to the page's own, so that a proxy may put the server below a path.
const KEY = "dyorc.key";
const ROOT = new URL("../", document.baseURI);

export const access = {
  key: sessionStorage.getItem(KEY) ?? "",
  /** Called when the server wants a key, or another one. */
  onRefused: () => {},
  set(key) {
    this.key = key;
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  },
};

export class ApiError extends Error {
  constructor(status, body) {
    super(body?.error ?? `the server answered ${status}`);
    this.status = status;
    this.code = body?.code ?? "http";
  }
}

/** Sends a request with the key, and returns the response if the server took it. */
export async function ask(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (access.key) headers.Authorization = `Bearer ${access.key}`;
  const response = await fetch(new URL(path, ROOT), { ...options, headers, cache: "no-store", credentials: "omit" });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  if (response.status === 401) access.onRefused(body?.error ?? "");
  throw new ApiError(response.status, body);
}

export const get = async (path, options) => (await ask(path, options)).json();

export const post = async (path, body) =>
  (await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();

/** Yields the events of a stream: {event, data}; a sign of life alone is null. EventSource would do this, but cannot send a key. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value.replaceAll("\r\n", "\n");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      yield parsed(text.slice(0, end));
      text = text.slice(end + 2);
    }
  }
}

function parsed(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}
