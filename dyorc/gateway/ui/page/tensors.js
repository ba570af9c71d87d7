// Tensors in the browser: made from zeros, random numbers, JSON, text or an image; sent as raw bytes; read back from JSON or bytes.
import { plural } from "./format.js";

/** By the protocol's names: the array of values, its range for random numbers, and whether its values are whole. */
const KINDS = {
  BOOL: [Uint8Array, 0, 1], UINT8: [Uint8Array, 0, 255], UINT16: [Uint16Array, 0, 1000], UINT32: [Uint32Array, 0, 1000], UINT64: [BigUint64Array, 0, 1000],
  INT8: [Int8Array, -100, 100], INT16: [Int16Array, -1000, 1000], INT32: [Int32Array, -1000, 1000], INT64: [BigInt64Array, 0, 1000],
  FP32: [Float32Array, 0, 1], FP64: [Float64Array, 0, 1], FP16: [Uint16Array, 0, 1], BF16: [Uint16Array, 0, 1],
}; // prettier-ignore

export const isReal = (datatype) => /^(FP|BF)/.test(datatype);
/** These have no JSON form. */
export const isBinaryOnly = (datatype) => datatype === "FP16" || datatype === "BF16";
export const sizeOf = (shape) => shape.reduce((product, dim) => product * dim, 1);

/** Numbers as the bytes of a tensor. */
export function toBytes(datatype, values) {
  const [ArrayType] = KINDS[datatype];
  const array = new ArrayType(values.length);
  const write = { FP16: toHalf, BF16: toBrain, INT64: (value) => BigInt(Math.round(value)), UINT64: (value) => BigInt(Math.round(value)) }[datatype] ?? Number;
  for (let index = 0; index < values.length; index += 1) array[index] = write(values[index]);
  return new Uint8Array(array.buffer);
}

/** The bytes of a tensor of halves as numbers. */
export function fromBytes(datatype, bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read = datatype === "BF16" ? fromBrain : fromHalf;
  return Array.from({ length: bytes.byteLength / 2 }, (_, index) => read(view.getUint16(index * 2, true)));
}

export function random(datatype, num) {
  const [, low, high] = KINDS[datatype];
  if (isReal(datatype)) return Float64Array.from({ length: num }, Math.random);
  return Float64Array.from({ length: num }, () => low + Math.floor(Math.random() * (high - low + 1)));
}

/** Text as UTF-8, filled up with spaces. */
export function fromText(text, num) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length > num) throw new Error(`the text has ${plural(bytes.length, "byte")}, the input takes ${num}`);
  const found = new Uint8Array(num).fill(32);
  found.set(bytes);
  return found;
}

/** [values, shape] of nested or flat JSON; a flat list takes the given shape. */
export function fromJson(text, shape, datatype) {
  const value = JSON.parse(text);
  const found = [];
  for (let at = value; Array.isArray(at); at = at[0]) found.push(at.length);
  const flat = [value].flat(Infinity).map((one) => (datatype === "BOOL" ? Number(one) : one));
  const wanted = found.length > 1 || shape.length <= 1 ? found : shape;
  if (wanted.length !== shape.length || sizeOf(wanted) !== flat.length) throw new Error(`the JSON has shape [${found}], expected [${shape}]`);
  return [flat, wanted];
}

/** Where an image's rows, columns and channels are in a shape: [C, H, W], [H, W, C] or [H, W]; null if it cannot hold one. */
export function imageLayout(shape) {
  const isChannel = (dim) => [1, 3, 4].includes(dim);
  if (shape.length === 2) return { rows: 0, columns: 1, channels: -1 };
  if (shape.length === 3 && isChannel(shape[0])) return { channels: 0, rows: 1, columns: 2 };
  if (shape.length === 3 && isChannel(shape[2])) return { rows: 0, columns: 1, channels: 2 };
  return null;
}

const MAX_SIDE = 1280;

/** An image as [values, shape]; open dimensions take the image's own size. `range` is [value of black, value of white]. */
export async function fromImage(file, declared, range, preview) {
  const layout = imageLayout(declared);
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  const shape = [...declared];
  if (shape[layout.rows] < 0) shape[layout.rows] = Math.round(bitmap.height * scale);
  if (shape[layout.columns] < 0) shape[layout.columns] = Math.round(bitmap.width * scale);
  const [height, width] = [shape[layout.rows], shape[layout.columns]];
  preview.width = width;
  preview.height = height;
  const context = preview.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  return [pixels(context.getImageData(0, 0, width, height).data, { layout, shape, range }), shape];
}

function pixels(data, { layout, shape, range: [black, white] }) {
  const num = layout.channels < 0 ? 1 : shape[layout.channels];
  const area = data.length / 4;
  const values = new Float64Array(area * num);
  for (let at = 0; at < area; at += 1) {
    for (let channel = 0; channel < num; channel += 1) {
      const value = num === 1 ? 0.299 * data[4 * at] + 0.587 * data[4 * at + 1] + 0.114 * data[4 * at + 2] : data[4 * at + channel];
      values[layout.channels === 0 ? channel * area + at : at * num + channel] = black + (value / 255) * (white - black);
    }
  }
  return values;
}

const real = new Float32Array(1);
const bits = new Uint32Array(real.buffer);

function toBrain(value) {
  real[0] = value;
  return ((bits[0] + 0x7fff + ((bits[0] >>> 16) & 1)) >>> 16) & 0xffff;
}

function fromBrain(half) {
  bits[0] = half << 16;
  return real[0];
}

function toHalf(value) {
  real[0] = value;
  const sign = (bits[0] >>> 16) & 0x8000;
  const size = Math.abs(value);
  if (Number.isNaN(size)) return 0x7e00;
  if (size >= 65_520) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | Math.round(size * 2 ** 24);
  const exponent = Math.floor(Math.log2(size));
  return sign | (((exponent + 15) << 10) + Math.round((size / 2 ** exponent - 1) * 1024));
}

function fromHalf(half) {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >>> 10) & 31;
  const fraction = half & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
}
