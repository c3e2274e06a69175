"use strict";
// Sets text, never markup: what a rollout says stays text.

const ROW = 28;
const TITLES = ["rollout", "task", "taskset", "outcome", "reward", "attempts", "calls", "tokens", "seconds", "why"];
const main = document.querySelector("main");

async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function make(tag, properties = {}, ...children) {
  const { className, ...others } = properties;
  const element = Object.assign(document.createElement(tag), others);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const short = (value) => (value === null || value === undefined ? "" : typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toFixed(4))) : String(value));

function table(head, rows) {
  const numeric = (cell) => ({ className: typeof cell === "number" ? "number" : "" });
  return make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((title) => make("th", {}, title)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", numeric(cell), cell instanceof Node ? cell : short(cell)))))));
}

function pairs(object) {
  return table(["", ""], Object.entries(object).map(([name, value]) => [name, typeof value === "object" && value !== null || String(value).length > 80 ? make("pre", {}, text(value)) : short(value)]));
}

function summary(run) {
  const account = run.coverage;
  const words = ["expected", "measured", "masked", "unscored", "failed", "owed", "attempts"].filter((word) => word in account);
  const parts = [make("h1", {}, run.name), make("p", { className: "note" }, [run.manifest.run_id, run.manifest.started_at, run.manifest.finished_at, `Gym ${run.gym_version}`].filter(Boolean).join(" · "))];
  if (words.length) parts.push(make("h2", {}, "Account"), table(words, [words.map((word) => account[word])]));
  const kinds = Object.entries(account.failed_by_kind || {});
  if (kinds.length) parts.push(table(["failed, by kind", ""], kinds));
  parts.push(make("h2", {}, "Metrics"), metrics(run.metrics));
  for (const note of run.metrics.notes) parts.push(make("p", { className: "note" }, note));
  parts.push(make("details", {}, make("summary", {}, "Manifest"), pairs(run.manifest)));
  return parts;
}

function metrics(found) {
  const groups = [["all", found.overall], ...["taskset", "subset"].flatMap((kind) => {
    const of = Object.entries(found[`by_${kind}`]);
    return of.length > 1 ? of.map(([name, values]) => [`${kind} ${name}`, values]) : [];
  })];
  const kinds = [["pass_at_k", "pass@"], ["pass_all_k", "pass^"], ["majority_at_k", "majority@"]];
  const columns = kinds.flatMap(([key, title]) => Object.keys(found.overall[key] || {}).map((k) => [key, k, title + k]));
  const head = ["", "tasks", "measured", "masked", "unscored", "mean reward", "± error", ...columns.map(([, , title]) => title)];
  return table(head, groups.map(([name, values]) => [name, values.tasks, values.measured, values.masked, values.unscored, values.mean_reward, values.standard_error,
    ...columns.map(([key, k]) => ((values[key] || {})[k] || {}).value)]));
}

function tasks(rollouts) {
  const found = new Map();
  for (const one of rollouts) {
    const key = JSON.stringify([one.taskset, one.task]);
    const task = found.get(key) || { name: one.task, taskset: one.taskset, rollouts: 0, measured: 0, passed: 0, sum: 0, masked: 0, failed: 0 };
    found.set(key, task);
    task.rollouts += 1;
    if (one.outcome === "measured") { task.measured += 1; task.sum += one.reward; task.passed += one.reward >= 1; }
    if (one.outcome === "masked" || one.outcome === "failed") task[one.outcome] += 1;
  }
  const rows = [...found.values()].sort((a, b) => a.sum / (a.measured || 1) - b.sum / (b.measured || 1) || (a.name < b.name ? -1 : 1));
  const view = make("div");
  const show = (most) => {
    view.replaceChildren(table(["task", "taskset", "rollouts", "measured", "passed", "mean reward", "masked", "failed"],
      rows.slice(0, most).map((task) => [task.name, task.taskset, task.rollouts, task.measured, task.passed, task.measured ? task.sum / task.measured : null, task.masked, task.failed])));
    if (rows.length > most) view.append(make("button", { onclick: () => show(most * 4) }, `${rows.length - most} more`));
  };
  show(100);
  return make("details", {}, make("summary", {}, `${rows.length} tasks, the hardest first`), view);
}

function browser(rollouts, open) {
  const state = { outcome: "", words: "", sort: -1, down: false, shown: rollouts };
  const body = make("div");
  const count = make("span", { className: "note" });
  const cells = (one) => [one.rollout, one.task, one.taskset, one.outcome, one.reward, one.attempts, one.calls, one.tokens, one.seconds, one.reason];
  const list = make("div", { className: "list", role: "grid", onscroll: draw },
    make("div", { className: "head", role: "row" }, ...TITLES.map((title, place) => make("button", { onclick: () => sort(place) }, title))), body);

  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 10);
    const last = Math.min(state.shown.length, first + Math.ceil(list.clientHeight / ROW) + 20);
    body.style.height = `${state.shown.length * ROW}px`;
    body.replaceChildren(...state.shown.slice(first, last).map((one, place) => {
      const row = make("div", { className: "row", role: "row", tabIndex: 0, onclick: () => open(one), onkeydown: (event) => event.key === "Enter" && open(one) },
        ...cells(one).map((cell, column) => make("span", { className: column === 3 ? `outcome ${one.outcome}` : "", title: column === 1 || column === 9 ? short(cell) : "" }, short(cell))));
      row.style.top = `${(first + place + 1) * ROW}px`;
      return row;
    }));
  }

  function choose() {
    const words = state.words.toLowerCase();
    state.shown = rollouts.filter((one) => (!state.outcome || one.outcome === state.outcome)
      && (!words || [one.rollout, one.task, one.taskset, one.subset, one.reason].some((cell) => String(cell).toLowerCase().includes(words))));
    if (state.sort >= 0) {
      const key = (one) => cells(one)[state.sort];
      const order = (a, b) => (a === null || a === undefined) - (b === null || b === undefined) || (a < b ? -1 : a > b ? 1 : 0) * (state.down ? -1 : 1);
      state.shown = [...state.shown].sort((a, b) => order(key(a), key(b)));
    }
    list.style.height = `min(55vh, ${state.shown.length * ROW + 40}px)`;
    count.textContent = `${state.shown.length} of ${rollouts.length} rollouts`;
    list.scrollTop = 0;
    draw();
  }

  function sort(place) {
    state.down = state.sort === place && !state.down;
    state.sort = place;
    choose();
  }

  const outcomes = ["", ...new Set(rollouts.map((one) => one.outcome))];
  const filters = make("div", { className: "filters" },
    make("select", { id: "outcome", onchange: (event) => { state.outcome = event.target.value; choose(); } }, ...outcomes.map((name) => make("option", { value: name }, name || "all outcomes"))),
    make("input", { id: "search", type: "search", placeholder: "task, rollout or reason", oninput: (event) => { state.words = event.target.value; choose(); } }), count);
  window.addEventListener("resize", draw);
  requestAnimationFrame(choose);
  return [filters, list];
}

function item(given) {
  const kinds = { function_call: "call", function_call_output: "result", reasoning: "reasoning" };
  const kind = kinds[given.type] || given.role || given.type || "item";
  const title = given.type === "function_call" ? `calls ${given.name}` : given.type === "function_call_output" ? "result" : kind;
  return make("div", { className: `item ${/^[a-z]+$/.test(kind) ? kind : ""}` }, make("b", {}, title), make("pre", {}, said(given)));
}

function said(given) {
  if (given.type === "function_call") return argumentsOf(given.arguments);
  if (given.type === "function_call_output") return text(given.output);
  const content = given.type === "reasoning" ? [...(given.summary || []), ...(given.content || [])] : given.content;
  if (Array.isArray(content)) return content.map((part) => (part && typeof part.text === "string" ? part.text : text(part))).join("\n");
  return content === undefined ? text(given) : text(content);
}

function argumentsOf(given) {
  try {
    const value = JSON.parse(given);
    return Object.entries(value).map(([name, one]) => `${name}: ${text(one)}`).join("\n");
  } catch {
    return text(given);
  }
}

function timings(details) {
  const parts = Object.entries(details.fields).filter(([name, value]) => typeof value === "number" && /(_time_taken|_seconds|_time_s)$/.test(name));
  const calls = details.calls.map((call) => [call.call_index, call.status_code, call.finish_reason, call.started_at ? new Date(call.started_at * 1000).toISOString() : "", call.latency_ttft_ms, call.latency_total_ms, call.tokens_in, call.tokens_out]);
  return [parts.length ? table(["what", "seconds"], parts) : null,
    calls.length ? table(["model call", "status", "finish", "started", "first token, ms", "all, ms", "tokens in", "tokens out"], calls) : null].filter(Boolean);
}

async function shown(one, number, run) {
  const head = [make("h2", {}, `Rollout ${one.rollout}: ${one.task}`),
    make("p", {}, make("span", { className: `outcome ${one.outcome}` }, one.outcome), one.reward === null ? "" : `, reward ${short(one.reward)}`, one.reason ? ` — ${one.reason}` : "")];
  if (number >= run.transcripts) return [...head, make("p", { className: "note" }, `The page has the transcripts of the first ${run.transcripts} rollouts; the output file has this one.`)];
  const details = await unpack(`r${number}`);
  const section = (title, ...content) => (content.length ? [make("h3", {}, title), ...content] : []);
  return [...head,
    ...section("Failed attempts", ...(details.attempts.length ? [table(["attempt", "kind", "class", "stage", "message"], details.attempts.map((tried) => [tried.attempt, tried.kind, tried.class, tried.stage, tried.message]))] : [])),
    ...section("Asked", ...details.asked.map(item)),
    ...section("Transcript", ...details.output.map(item)),
    ...section("Timings", ...timings(details)),
    ...section("Verdict and task", pairs(details.fields)),
    ...section("What the agent reported", pairs(details.observations))];
}

async function start() {
  const run = await unpack("run");
  const rollouts = run.lines.map((line) => Object.fromEntries(run.columns.map((name, place) => [name, line[place]])));
  const places = new Map(rollouts.map((one, number) => [one, number]));
  const details = make("section", { id: "details" });
  const open = async (one) => {
    details.replaceChildren(...await shown(one, places.get(one), run));
    history.replaceState(null, "", `#${encodeURIComponent(one.rollout)}`);
    details.scrollIntoView();
  };
  document.title = `Gym: ${run.name}`;
  main.append(...summary(run), make("h2", {}, "Tasks"), tasks(rollouts), make("h2", {}, "Rollouts"), ...browser(rollouts, open), details);
  const wanted = decodeURIComponent(location.hash.slice(1));
  const linked = wanted && rollouts.find((one) => one.rollout === wanted);
  if (linked) await open(linked);
  document.body.dataset.ready = "yes";
}

start().catch((error) => main.append(make("p", { className: "failed" }, `This page could not be shown: ${error}`)));
