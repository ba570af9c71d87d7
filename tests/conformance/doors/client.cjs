// Tries the server by gRPC and by fetch: node client.cjs GRPC_ADDRESS URL DESCRIPTORS PROTO. Prints a line of JSON for each check.
const assert = require("node:assert/strict");
const fs = require("node:fs");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, url, descriptors, ownProto] = process.argv.slice(2);
const options = { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true };
const definition = loader.loadFileDescriptorSetFromBuffer(fs.readFileSync(descriptors), options);
const { inference } = grpc.loadPackageDefinition(definition);
const client = new inference.GRPCInferenceService(address, grpc.credentials.createInsecure());

const deadline = () => ({ deadline: Date.now() + 30_000 });
const call = (name, request) =>
  new Promise((resolve, reject) => client[name](request, deadline(), (error, answer) => (error ? reject(error) : resolve(answer))));

const floats = (values) => Buffer.from(Float32Array.from(values).buffer);
const toFloats = (bytes) => Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(4 * at));
const texts = (values) =>
  Buffer.concat(
    values.map((value) => {
      const text = Buffer.from(value);
      const length = Buffer.alloc(4);
      length.writeUInt32LE(text.length);
      return Buffer.concat([length, text]);
    }),
  );
const toTexts = (bytes) => {
  const found = [];
  for (let at = 0; at < bytes.length; ) {
    const length = bytes.readUInt32LE(at);
    found.push(bytes.subarray(at + 4, at + 4 + length).toString());
    at += 4 + length;
  }
  return found;
};
const X = { name: "x", datatype: "FP32", shape: [3] };
const TEXTS = { name: "texts", datatype: "BYTES", shape: [2] };
const behave = (values) => ({ model_name: "behave", inputs: [{ ...X, shape: [values.length] }], raw_input_contents: [floats(values)] });
// A descriptor has no maps, only lists of their entries.
const entries = (object) => Object.entries(object).map(([key, value]) => ({ key, value }));
const fails = async (promise, code) => {
  const error = await promise.then(
    () => assert.fail(`answered, expected the status ${grpc.status[code]}`),
    (error) => error,
  );
  assert.equal(error.code, code, error.message);
  return error;
};
const post = (path, body, headers = { "content-type": "application/json" }) =>
  fetch(url + path, { method: "POST", body, headers, signal: AbortSignal.timeout(30_000) });

function stream(requests) {
  return new Promise((resolve, reject) => {
    const found = [];
    const both = client.ModelStreamInfer(deadline());
    both.on("data", (answer) => found.push(answer));
    both.on("error", reject);
    both.on("end", () => resolve(found));
    for (const request of requests) both.write(request);
    both.end();
  });
}

const checks = {
  "gRPC: health": async () => {
    assert.equal((await call("ServerLive", {})).live, true);
    assert.equal((await call("ServerReady", {})).ready, true);
    assert.equal((await call("ModelReady", { name: "mirror" })).ready, true);
  },
  "gRPC: metadata": async () => {
    const found = await call("ModelMetadata", { name: "mirror" });
    assert.deepEqual(found.inputs, [
      { name: "x", datatype: "FP32", shape: [-1] },
      { name: "texts", datatype: "BYTES", shape: [-1] },
    ]);
    assert.ok((await call("ServerMetadata", {})).name);
  },
  "gRPC: typed contents": async () => {
    const inputs = [
      { ...X, contents: { fp32_contents: [1, 2, 3] } },
      { ...TEXTS, contents: { bytes_contents: [Buffer.from("ab"), Buffer.from("")] } },
    ];
    const found = await call("ModelInfer", { model_name: "mirror", id: "mine", inputs });
    assert.equal(found.id, "mine");
    assert.deepEqual(toFloats(found.raw_output_contents[0]), [2, 3, 4]);
  },
  "gRPC: raw contents and BYTES": async () => {
    const raw = [floats([1, 2, 3]), texts(["abc", "día"])];
    const outputs = [{ name: "reversed" }, { name: "raised" }];
    const found = await call("ModelInfer", { model_name: "mirror", inputs: [X, { ...TEXTS }], outputs, raw_input_contents: raw });
    assert.deepEqual(found.outputs.map((output) => output.name), ["reversed", "raised"]);
    const reversed = Buffer.from("día").reverse().toString();
    assert.deepEqual(toTexts(found.raw_output_contents[0]), ["cba", reversed]);
    assert.deepEqual(toFloats(found.raw_output_contents[1]), [2, 3, 4]);
  },
  "gRPC: a wrong shape": async () => {
    const wrong = { model_name: "behave", inputs: [{ ...X, shape: [2, 2] }], raw_input_contents: [floats([1, 2, 3, 4])] };
    const error = await fails(call("ModelInfer", wrong), grpc.status.INVALID_ARGUMENT);
    assert.match(error.details, /x/);
    assert.deepEqual(error.metadata.get("dyorc-code"), ["invalid_input"]);
  },
  "gRPC: an unknown model": () => fails(call("ModelInfer", { ...behave([1]), model_name: "nothing" }), grpc.status.NOT_FOUND),
  "gRPC: a stream of parts, with its end": async () => {
    const parameters = entries({ triton_enable_empty_final_response: { bool_param: true }, num_parts: { int64_param: 4 } });
    const found = await stream([{ ...behave([0, 1]), model_name: "count", id: "c", parameters }]);
    assert.deepEqual(found.map((answer) => answer.error_message), ["", "", "", "", ""]);
    const parts = found.map((answer) => answer.infer_response);
    assert.deepEqual(parts.slice(0, 4).map((part) => toFloats(part.raw_output_contents[0])), [[1, 2], [2, 3], [3, 4], [4, 5]]);
    const isFinal = parts[4].parameters.find((entry) => entry.key === "triton_final_response");
    assert.equal(isFinal.value.bool_param, true);
  },
  "gRPC: an error leaves a stream open": async () => {
    const found = await stream([{ ...behave([1]), model_name: "nothing" }, { ...behave([2]), id: "good" }]);
    assert.equal(found.filter((answer) => answer.error_message).length, 1);
    assert.equal(found.filter((answer) => !answer.error_message && answer.infer_response.id === "good").length, 1);
  },
  "gRPC: 32 requests at a time": async () => {
    for (let round = 0; round < 4; round++) {
      const values = Array.from({ length: 32 }, (_, at) => [at, round]);
      const found = await Promise.all(values.map((value) => call("ModelInfer", behave(value))));
      assert.deepEqual(found.map((answer) => toFloats(answer.raw_output_contents[0])), values);
    }
  },
  "gRPC: a deadline that passes": async () => {
    const slow = { ...behave([1]), parameters: entries({ rest_s: { double_param: 2 } }) };
    const late = new Promise((resolve, reject) =>
      client.ModelInfer(slow, { deadline: Date.now() + 200 }, (error, answer) => (error ? reject(error) : resolve(answer))),
    );
    await fails(late, grpc.status.DEADLINE_EXCEEDED);
  },
  "gRPC: inference.proto of this project": async () => {
    const own = grpc.loadPackageDefinition(loader.loadSync(ownProto, { keepCase: true })).inference;
    const ours = new own.GRPCInferenceService(address, grpc.credentials.createInsecure());
    const x = { ...X, contents: { fp32_contents: [1, 2, 3] } };
    const answer = await new Promise((resolve, reject) =>
      ours.ModelInfer({ model_name: "behave", inputs: [x] }, deadline(), (error, found) => (error ? reject(error) : resolve(found))),
    );
    ours.close();
    assert.deepEqual(toFloats(answer.raw_output_contents[0]), [1, 2, 3]);
  },
  "fetch: JSON": async () => {
    const inputs = [{ ...X, data: [1, 2, 3] }, { ...TEXTS, data: ["ab", "ç"] }];
    const answer = await post("/v2/models/mirror/infer", JSON.stringify({ inputs, outputs: [{ name: "raised" }] }));
    assert.equal(answer.status, 200);
    assert.deepEqual((await answer.json()).outputs[0].data, [2, 3, 4]);
  },
  "fetch: binary tensors": async () => {
    const raw = floats([1, 2, 3]);
    const inputs = [{ ...X, parameters: { binary_data_size: raw.length } }];
    const head = Buffer.from(JSON.stringify({ inputs, parameters: { binary_data_output: true } }));
    const headers = { "content-type": "application/octet-stream", "inference-header-content-length": String(head.length) };
    const answer = await post("/v2/models/behave/infer", Buffer.concat([head, raw]), headers);
    assert.equal(answer.status, 200);
    const body = Buffer.from(await answer.arrayBuffer());
    const length = Number(answer.headers.get("inference-header-content-length"));
    assert.equal(JSON.parse(body.subarray(0, length)).outputs[0].parameters.binary_data_size, 12);
    assert.deepEqual(toFloats(body.subarray(length)), [1, 2, 3]);
  },
  "fetch: a wrong shape and an unknown model": async () => {
    const body = JSON.stringify({ inputs: [{ ...X, shape: [2, 2], data: [1, 2, 3, 4] }] });
    const wrong = await post("/v2/models/behave/infer", body);
    assert.deepEqual([wrong.status, (await wrong.json()).code], [400, "invalid_input"]);
    assert.equal((await post("/v2/models/nothing/infer", body)).status, 404);
  },
  "fetch: a body of unknown length to /run": async () => {
    const body = new Blob(['{"text": ', '"To be"}']).stream();
    const answer = await fetch(`${url}/run/words`, { method: "POST", body, duplex: "half", headers: { "content-type": "application/json" } });
    assert.deepEqual(await answer.json(), { words: ["to", "be"], total: 2 });
  },
  "fetch: a form with a file": async () => {
    const form = new FormData();
    form.set("text", new Blob(["To be"]), "text.txt");
    const refused = await fetch(`${url}/run/thumbnail`, { method: "POST", body: form });
    assert.equal(refused.status, 400);
    const good = new FormData();
    good.set("text", "To be");
    const answer = await fetch(`${url}/run/words`, { method: "POST", body: good });
    assert.deepEqual(await answer.json(), { words: ["to", "be"], total: 2 });
  },
  "fetch: events of /run": async () => {
    const answer = await post("/run/spell", '{"text": "to be"}', { "content-type": "application/json", accept: "text/event-stream" });
    assert.equal(await answer.text(), 'data: "to"\n\ndata: "be"\n\n');
  },
};

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    let detail = "";
    try {
      await check();
    } catch (error) {
      detail = String(error?.message || error) || "failed";
    }
    console.log(JSON.stringify({ name, detail }));
  }
  client.close();
})();
