// Sends one request of the inference protocol, with raw bytes behind its JSON, and reads the answer or its parts.
import { ask, events } from "./api.js";
import { fromBytes, isBinaryOnly, toBytes } from "./tensors.js";

const LENGTH = "Inference-Header-Content-Length";

/** inputs: [{name, datatype, shape, values}]. Calls `take` with each answer: {outputs, parameters}. */
export async function infer(model, { id, inputs, parameters, isStream, take }) {
  const body = packed({ id, inputs, parameters, outputs: isStream ? [] : model.outputs });
  const headers = { "Content-Type": "application/octet-stream", [LENGTH]: String(body.jsonBytes) };
  if (isStream) headers.Accept = "text/event-stream";
  const path = `v2/models/${encodeURIComponent(model.name)}/${isStream ? "infer_stream" : "infer"}`;
  const response = await ask(path, { method: "POST", headers, body: body.bytes });
  if (!isStream) {
    take(await whole(response));
    return;
  }
  for await (const found of events(response)) {
    if (found?.data.error) throw new Error(found.data.error);
    if (found) take(found.data);
  }
}

function packed({ id, inputs, parameters, outputs }) {
  const tensors = inputs.map(({ datatype, values }) => (datatype === "BYTES" ? null : toBytes(datatype, values)));
  const head = {
    id,
    inputs: inputs.map(({ name, datatype, shape, values }, index) =>
      tensors[index] ? { name, datatype, shape, parameters: { binary_data_size: tensors[index].length } } : { name, datatype, shape, data: values }),
    parameters,
  }; // prettier-ignore
  if (outputs.length) head.outputs = outputs.map(({ name, datatype }) => ({ name, parameters: { binary_data: isBinaryOnly(datatype) } }));
  const json = new TextEncoder().encode(JSON.stringify(head));
  return { jsonBytes: json.length, bytes: new Blob([json, ...tensors.filter(Boolean)]) };
}

async function whole(response) {
  const jsonBytes = response.headers.get(LENGTH);
  if (jsonBytes === null) return response.json();
  const bytes = new Uint8Array(await response.arrayBuffer());
  const answer = JSON.parse(new TextDecoder().decode(bytes.subarray(0, Number(jsonBytes))));
  let at = Number(jsonBytes);
  for (const output of answer.outputs) {
    const size = output.parameters?.binary_data_size;
    if (size === undefined) continue;
    output.data = fromBytes(output.datatype, bytes.slice(at, at + size));
    at += size;
  }
  return answer;
}
