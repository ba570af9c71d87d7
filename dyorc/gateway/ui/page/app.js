// The frame around all views: navigation, state of the connection, colours, and the question for a key.
import { access } from "./api.js";
import { html, render, useEffect, useRef, useState } from "./html.js";
import { live, useLive } from "./live.js";
import { to, useRoute } from "./route.js";
import { Jobs } from "./views/jobs.js";
import { Overview } from "./views/overview.js";
import { Program } from "./views/program.js";
import { Programs } from "./views/programs.js";
import { Request } from "./views/request.js";
import { Requests } from "./views/requests.js";
import { Scaling } from "./views/scaling.js";
import { Tenants } from "./views/tenants.js";
import { Try } from "./views/try.js";

const VIEWS = [
  { name: "", title: "Overview", all: Overview },
  { name: "programs", title: "Programs", all: Programs, one: Program },
  { name: "requests", title: "Requests", all: Requests, one: Request },
  { name: "try", title: "Try it", all: Try, one: Try },
  { name: "jobs", title: "Jobs", all: Jobs },
  { name: "tenants", title: "Tenants", all: Tenants },
  { name: "scaling", title: "Scaling", all: Scaling },
];

const CONNECTION = {
  waiting: ["muted", "connecting"],
  on: ["ok", "live"],
  lost: ["bad", "connection lost"],
  refused: ["warn", "no live data"],
};

function App() {
  const route = useRoute();
  const view = VIEWS.find(({ name }) => name === route.view) ?? VIEWS[0];
  const shown = route.rest.length && view.one ? view.one : view.all;
  const main = useRef(null);
  const isFirst = useRef(true);
  const place = `${route.view}/${route.rest.join("/")}`;
  useEffect(() => {
    document.title = `${[...route.rest, view.title].join(" · ")} · DyOrc`;
    if (isFirst.current) isFirst.current = false;
    else {
      scrollTo(0, 0);
      main.current.querySelector("h1")?.focus();
    }
  }, [place]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => skipTo(event, main)}>Skip to the content</a>
    <div class="frame">
      <${Side} view=${view} />
      <main class="main" id="main" tabindex="-1" ref=${main}>
        <${Lost} />
        <${shown} key=${place} route=${route} />
      </main>
    </div>
    <${KeyDialog} />`;
}

function skipTo(event, main) {
  event.preventDefault();
  main.current.focus();
}

function Side({ view }) {
  const nav = useRef(null);
  useEffect(() => {
    const chosen = nav.current.querySelector("[aria-current]"); // on a phone the others may hide it
    nav.current.scrollLeft = chosen.offsetLeft - (nav.current.clientWidth - chosen.offsetWidth) / 2;
  }, [view]);
  return html`<header class="side">
    <a class="brand" href=${to("")}><img src="icon.svg" alt="" width="26" height="26" />DyOrc</a>
    <nav class="nav" aria-label="Views" ref=${nav}>
      ${VIEWS.map(
        ({ name, title }) => html`<a href=${to(name)} aria-current=${view.name === name ? "page" : undefined}>${title}</a>`,
      )}
    </nav>
    <div class="side-foot">
      <${Connection} />
      <${Theme} />
    </div>
  </header>`;
}

function Connection() {
  const { state } = useLive();
  const [tone, text] = CONNECTION[state];
  return html`<div class="link-state" role="status" aria-live="polite">
    <span class="dot ${tone}" aria-hidden="true"></span>${text}
  </div>`;
}

/** Says loudly what a small dot might not. */
function Lost() {
  const { state, now, error } = useLive();
  if (state !== "lost" || !now) return null;
  return html`<div class="banner" role="alert">
    <span>Connection lost: what you see is from ${new Date(now.at_s * 1000).toLocaleTimeString("en-GB")}. Trying again …</span>
    <button class="button" onClick=${() => live.restart()} title=${error}>Now</button>
  </div>`;
}

const THEMES = { "": "auto", light: "light", dark: "dark" };

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (value) => {
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("dyorc.theme", value);
    setTheme(value);
    dispatchEvent(new Event("themechange"));
  };
  return html`<label class="small muted colours"><span>Colours </span><select value=${theme} onChange=${(event) => choose(event.target.value)}>
      ${Object.entries(THEMES).map(([value, title]) => html`<option value=${value} selected=${value === theme}>${title}</option>`)}
    </select></label>`;
}

function KeyDialog() {
  const [reason, setReason] = useState(null);
  const dialog = useRef(null);
  useEffect(() => {
    access.onRefused = (text) => setReason((before) => before ?? text);
  }, []);
  useEffect(() => {
    if (reason !== null && !dialog.current.open) dialog.current.showModal();
  }, [reason]);
  const enter = (event) => {
    event.preventDefault();
    access.set(new FormData(event.target).get("key").trim());
    dialog.current.close();
  };
  const closed = () => {
    setReason(null);
    live.restart();
    dispatchEvent(new HashChangeEvent("hashchange"));
    dispatchEvent(new Event("keychange"));
  };
  return html`<dialog class="dialog" ref=${dialog} aria-labelledby="key-title" onClose=${closed}>
    <form class="form" onSubmit=${enter}>
      <h2 id="key-title">This server asks for an API key</h2>
      <p class="small muted">${access.key ? reason : "It stays in this tab and is forgotten when you close it."}</p>
      <label class="field">API key<input name="key" type="password" autocomplete="off" required autofocus /></label>
      <div class="controls"><button class="button strong">Enter</button></div>
    </form>
  </dialog>`;
}

live.start();
document.getElementById("app").replaceChildren();
render(html`<${App} />`, document.getElementById("app"));
