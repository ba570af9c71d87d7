// Where the reader is: the part of the address behind '#', as a path and a query.
import { useEffect, useState } from "./html.js";

function parsed() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...rest] = path.split("/").map(decodeURIComponent);
  return { view, rest: rest.filter(Boolean), query: new URLSearchParams(query ?? "") };
}

export function useRoute() {
  const [route, setRoute] = useState(parsed);
  useEffect(() => {
    const changed = () => setRoute(parsed());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** The address of a view: to("requests", "7fa3"), to("requests", {workflow: "guarded"}). */
export function to(view, ...rest) {
  const query = typeof rest.at(-1) === "object" ? rest.pop() : {};
  const given = Object.entries(query).filter(([, value]) => value);
  const path = [view, ...rest].filter(Boolean).map(encodeURIComponent).join("/");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Changes the address without another entry in the history, as for filters. */
export function replace(address) {
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
