// Draws what the party says (`/events`), and says so if it falls silent. Texts are never taken as markup.
"use strict";

const SILENCE = 2500; // ms without a word after which the connection counts as lost
const PHASES = ["joining", "agreeing", "scaling", "union", "sharing", "checking", "rounds", "finished"];
const PARTS = ["compute", "transport", "waiting", "decode"];
const $ = (id) => document.getElementById(id);
const number = (value, digits = 6) => value === null || value === undefined ? "–" : (Number.isInteger(value) ? value : Number(value.toPrecision(digits))).toLocaleString("en");

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function row(cells, head) {
  const made = element("tr");
  cells.forEach((cell, place) => {
    const [text, className] = Array.isArray(cell) ? cell : [cell, typeof cell === "number" && place ? "n" : ""];
    const one = element(head || place === 0 ? "th" : "td", typeof text === "number" ? number(text) : text, className);
    if (one.tagName === "TH") one.scope = head ? "col" : "row";
    made.append(one);
  });
  return made;
}

function table(id, heads, rows) {
  const head = element("thead"), body = element("tbody");
  head.append(row(heads, true));
  body.append(...rows.map((cells) => row(cells)));
  $(id).replaceChildren(head, body);
}

// --- charts: SVG, drawn from scratch at every change; the same numbers are in a table below each -----------------------

const W = 420, H = 180, LEFT = 8, BOTTOM = 24, TOP = 22;

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function canvas(id, label) {
  const made = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  made.append(svg("line", { class: "axis", x1: LEFT, x2: W - LEFT, y1: H - BOTTOM, y2: H - BOTTOM }));
  $(id).replaceChildren(made);
  return made;
}

function ends(chart, first, last, top) {
  chart.append(svg("text", { x: LEFT, y: H - 5 }, first), svg("text", { x: W - LEFT, y: H - 5, "text-anchor": "end" }, last));
  if (top !== "") chart.append(svg("text", { x: LEFT, y: 14 }, top));
}

function lineChart(id, label, points) {
  const chart = canvas(id, label), values = points.map((p) => p.y), low = Math.min(...values), high = Math.max(...values);
  const place = (p, i) => [
    LEFT + 4 + (W - 2 * LEFT - 8) * (points.length > 1 ? i / (points.length - 1) : 0.5),
    H - BOTTOM - 4 - (H - BOTTOM - TOP - 8) * (high > low ? (p.y - low) / (high - low) : 0.5),
  ];
  const at = points.map(place);
  chart.append(svg("polyline", { class: "line", points: at.map((p) => p.join(",")).join(" ") }));
  if (points.length <= 60) at.forEach(([x, y]) => chart.append(svg("circle", { class: "dot", cx: x, cy: y, r: 2.5 })));
  ends(chart, `request ${points[0].x}`, points.at(-1).x, `${number(high, 5)} highest, ${number(low, 5)} lowest`);
}

function bars(id, label, columns, top, under) {
  // columns: [{x, parts: [value, …]}]; at most 120 fit, the latest are shown
  const chart = canvas(id, label), shown = columns.slice(-120);
  const high = Math.max(...shown.map((c) => c.parts.reduce((a, b) => a + b, 0)), 1e-9), step = (W - 2 * LEFT) / shown.length;
  const wide = Math.min(step * 0.8, 40);
  shown.forEach((column, i) => {
    let y = H - BOTTOM;
    column.parts.forEach((value, part) => {
      const height = (H - BOTTOM - TOP) * value / high;
      y -= height;
      if (height > 0) chart.append(svg("rect", { class: `f${part}`, x: LEFT + step * i + (step - wide) / 2, y, width: wide, height }));
    });
    if (under && shown.length <= 16) {
      chart.append(svg("text", { x: LEFT + step * (i + 0.5), y: H - 5, "text-anchor": "middle" }, column.x));
    }
  });
  const few = under && shown.length <= 16;
  ends(chart, few ? "" : `${under ? "cluster" : "request"} ${shown[0].x}`, few ? "" : shown.at(-1).x, top(high));
}

// --- sections ----------------------------------------------------------------------------------------------------------

const short = (id) => id.slice(0, 8); // enough for every command
const moment = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 16).replace("T", " ") + " UTC";

function sentence(view) {
  if (!view.stays) return course(view);
  if (!view.job) return "No job has run since this process was started.";
  const text = course(view);
  return ["finished", "failed"].includes(view.phase) ? `No job is running. The last, ${short(view.job)}: ${text}` : `Job ${short(view.job)}: ${text}`;
}

function course(view) {
  if (view.reason) return `Failed: ${view.reason}`;
  if (view.phase === "finished") return "Finished.";
  const whom = view.waits_for.length ? `, waiting for ${view.waits_for.join(", ")}` : "";
  return view.phase[0].toUpperCase() + view.phase.slice(1) + whom;
}

function progress(view) {
  const last = view.requests.at(-1), moving = view.runs.filter((run) => !run.done).length;
  if (!last) return "";
  const runs = view.runs.length > 1 && moving ? `, ${moving} of ${view.runs.length} runs move` : "";
  return `Request ${last.number} answered, ${number(last.changed)} rows moved${runs}`;
}

function now(view) {
  const text = sentence(view);
  if ($("now").textContent !== text) $("now").textContent = text; // once per change of phase: it is read aloud
  $("progress").textContent = progress(view);
  $("title").textContent = view.federation;
  document.body.className = view.role;
  $("who").textContent = view.role === "server" ? "as the server sees it" : `as ${view.name} sees it`;
  document.title = `${view.phase} · ${view.federation}`;
  const at = PHASES.indexOf(view.phase);
  $("phases").replaceChildren(...PHASES.filter((name) => !["scaling", "union"].includes(name) || name in view.phase_seconds || view.phase === name).map((name) => {
    const seconds = view.phase_seconds[name], here = name === view.phase;
    const one = element("li", seconds === undefined ? name : `${name} ${number(seconds, 3)} s`);
    one.className = here ? "here" : at > PHASES.indexOf(name) || seconds !== undefined ? "past" : "";
    if (here) one.setAttribute("aria-current", "step");
    return one;
  }), ...(view.phase === "failed" ? [element("li", "failed", "here failed")] : []));
  $("phases").hidden = view.stays && !view.job;
  const trouble = [...view.broken_links, ...view.parties.filter((p) => !p.ok && p.state.startsWith("lost")).map((p) => `${p.name}: ${p.state}`)];
  if ([...$("trouble").children].map((one) => one.textContent).join("\n") !== trouble.join("\n")) { // read aloud too
    $("trouble").hidden = !trouble.length;
    $("trouble").replaceChildren(...trouble.map((text) => element("li", text)));
  }
  const job = [["Rows", number(view.rows)], ["k", view.k.join(", ")]];
  const facts = [...(view.stays && !view.job ? [] : job), ["Uploads", view.uploads], ["The server", view.sees]];
  if (view.committee.length) facts.push(["Committee", view.committee.join(", ")]);
  $("facts").replaceChildren(...facts.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
  $("version").textContent = `SecFC ${view.version}`;
}

function charts(view) {
  const all = view.requests, known = all.filter((one) => one.inertia !== null), timed = all.filter((one) => one.seconds !== null);
  $("s-inertia").hidden = !known.length;
  if (known.length) {
    lineChart("c-inertia", `Inertia: ${number(known[0].inertia)} at first, ${number(known.at(-1).inertia)} now`, known.map((one) => ({ x: one.number, y: one.inertia })));
    table("t-inertia", ["Request", "Step", ["Inertia", "n"]], known.map((one) => [one.number, one.step, one.inertia]).reverse());
  }
  const moves = all.filter((one) => one.step !== "seed");
  $("s-moved").hidden = !moves.length;
  if (moves.length) {
    bars("c-moved", `Rows that moved: ${number(moves.at(-1).changed)} by the last request`, moves.map((one) => ({ x: one.number, parts: [one.changed] })), (high) => `${number(high)} at most`, false);
    table("t-moved", ["Request", "Step", ["Rows moved", "n"]], moves.map((one) => [one.number, one.step, one.changed]).reverse());
  }
  $("s-time").hidden = !timed.length;
  if (timed.length) {
    const parts = (one) => PARTS.map((name) => one[name] || 0);
    bars("c-time", `Seconds per request: ${number(timed.at(-1).seconds, 3)} for the last`, timed.map((one) => ({ x: one.number, parts: parts(one) })), (high) => `${number(high, 3)} s at most`, false);
    table("t-time", ["Request", ["Seconds", "n"], ...PARTS.map((name) => [name, "n"]), ["Attempts", "n"]],
      timed.map((one) => [one.number, one.seconds, ...parts(one), one.attempts].map((value, i) => i ? Number(value.toPrecision(3)) : value)).reverse());
  }
  $("s-sizes").hidden = !view.sizes.length;
  if (view.sizes.length) {
    $("sizes-of").textContent = view.sizes_of;
    bars("c-sizes", `Rows per cluster: ${view.sizes.join(", ")}`, view.sizes.map((size, h) => ({ x: h, parts: [size] })), (high) => `${number(high)} rows in the largest`, true);
    table("t-sizes", ["Cluster", ["Rows", "n"]], view.sizes.map((size, h) => [h, size]));
  }
}

function tables(view) {
  $("s-given").hidden = !view.given.length && !view.given_note;
  $("given").replaceChildren(...view.given.map((one) => row([one.what, one.count, one.most ?? ["–", "n"],
    one.limit === null ? ["no limit", "n site-only"] : [Math.max(one.limit - one.count, 0), one.limit > one.count ? "n site-only" : "n site-only bad"]])));
  $("given-note").textContent = view.given_note;
  $("parties").replaceChildren(...view.parties.map((p) => row([p.name, [p.state, p.ok ? "good" : "bad"], p.rows ?? ["–", "n"]])));
  $("s-runs").hidden = view.runs.length < 2;
  $("runs").replaceChildren(...view.runs.map((run) => row([run.k, run.start + 1, run.rounds, run.inertia ?? ["–", "n"],
    (run.done ? "done" : "moving") + (run.chosen ? (view.over ? ", best of its k" : ", best so far") : "")])));
}

function status(job) {
  const whom = job.waits_for.length ? ` for ${job.waits_for.join(", ")}` : "", why = job.reason ? `: ${job.reason}` : "";
  if (job.state === "submitted" && whom) return `no answer yet from ${job.waits_for.join(", ")}`;
  return job.state + (job.state === "waiting" ? whom : "") + why;
}

function jobs(view) {
  $("s-jobs").hidden = !view.stays;
  $("no-jobs").hidden = Boolean(view.jobs.length);
  if (!view.jobs.length) return $("jobs").replaceChildren();
  const kind = { finished: "good", failed: "bad", refused: "bad", expired: "bad" };
  table("jobs", ["Job", "State", "Submitted by", "Dataset", "k", "Submitted", ["Took", "n"]], view.jobs.map((job) => [
    short(job.id), [status(job), kind[job.state] || ""], job.submitter, job.dataset, job.k.join(", "), moment(job.submitted),
    [job.began && job.ended && job.state === "finished" ? `${number(job.ended - job.began)} s` : "–", "n"],
  ]));
  view.jobs.forEach((job, place) => {
    if (view.role !== "server" || !job.approvals_of.length) return;
    const cell = $("jobs").tBodies[0].rows[place].cells[1];
    cell.append(element("br"), "there: ", element("code", `secfc approve ${short(job.id)} --kit KIT`));
  });
}

const asked = new Map(); // articles by digest: somebody may be typing there, so they stay where they are

function asks(view) {
  const waiting = view.jobs.filter((job) => job.question.length), box = $("asks");
  $("s-asks").hidden = !waiting.length;
  for (const [digest, article] of asked) if (!waiting.some((job) => job.digest === digest)) { article.remove(); asked.delete(digest); }
  for (const job of waiting) {
    const article = asked.get(job.digest), now = JSON.stringify(job.question);
    if (!article) {
      asked.set(job.digest, question(job, view.decides));
      box.append(asked.get(job.digest));
    } else if (article.dataset.told !== now) article.querySelector("dl").replaceWith(questionFacts(job));
    asked.get(job.digest).dataset.told = now;
  }
}

function questionFacts(job) {
  const facts = element("dl");
  for (const [name, value] of job.question) {
    const long = value.includes("\n"), pair = element("div", undefined, long ? "long" : ""), text = element("dd");
    text.append(long ? element("pre", value, value.split("\n").length > 6 ? "many" : "") : value);
    pair.append(element("dt", name), text);
    facts.append(pair);
  }
  return facts;
}

function question(job, decides) {
  const made = element("article"), facts = questionFacts(job);
  made.append(element("h3", `Job ${short(job.id)} of ${job.submitter}, on ${job.dataset}`));
  const how = element("p", "At this machine: ");
  how.append(element("code", `secfc approve ${short(job.id)} --kit KIT`), " or ", element("code", `secfc refuse ${short(job.id)} --kit KIT`));
  made.append(facts, how);
  if (decides) made.append(form(job));
  return made;
}

function field(label, type, required, hint) {
  const made = element("label", label), input = element("input");
  made.append(element("small", hint));
  input.type = type;
  input.required = required;
  input.autocomplete = "off";
  made.append(input);
  return [made, input];
}

function form(job) {
  const made = element("form"), says = element("output");
  const [tokenLabel, token] = field("Token of this node", "password", true, "In STATE/decide.token, or on the node’s terminal at its start");
  const [whoLabel, who] = field("Your name", "text", false, "Every party and the submitter read it");
  const [whyLabel, why] = field("Why, if you refuse", "text", false, "Every party and the submitter read it");
  const yes = element("button", "Take part in this job"), no = element("button", "Refuse it");
  who.maxLength = 60;
  why.maxLength = 200;
  yes.value = "approve";
  no.value = "refuse";
  const buttons = element("div", undefined, "buttons");
  buttons.append(yes, no, says);
  made.append(tokenLabel, whoLabel, whyLabel, buttons);
  made.addEventListener("keydown", (event) => { // Enter would press the first button, whatever was typed: a decision is a click
    if (event.key === "Enter" && event.target.tagName === "INPUT") event.preventDefault();
  });
  made.addEventListener("submit", async (event) => {
    event.preventDefault();
    const chosen = { do: event.submitter ? event.submitter.value : "approve", job: job.digest, token: token.value, who: who.value, why: why.value };
    yes.disabled = no.disabled = true;
    try {
      const answer = await fetch("decide", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(chosen) });
      says.textContent = (await answer.text()).trim();
    } catch {
      says.textContent = "the node does not answer; try again";
    }
    yes.disabled = no.disabled = false;
  });
  return made;
}

function profile(view) {
  const own = view.profile;
  $("s-profile").hidden = !own;
  if (!own) return;
  $("profile-of").textContent = `Means of ${number(own.of_rows)} rows; colour: how far a cluster’s mean is from the mean of all clusters here, in deviations between clusters. They stay on this machine.`;
  table("profile", ["Feature", ...own.clusters.map((c, i) => [`${c} (${number(own.sizes[i])} rows)`, "n"])], own.features.map((name, f) => {
    const values = own.means.map((means) => means[f]), mean = values.reduce((a, b) => a + b, 0) / values.length;
    const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length) || 1;
    return [name, ...values.map((value) => {
      const shade = Math.round(2 * Math.max(-2, Math.min(2, (value - mean) / deviation)));
      return [Number(value.toPrecision(4)), shade ? (shade < 0 ? "m" : "p") + Math.abs(shade) : ""];
    })];
  }));
}

function draw(view) {
  asks(view);
  now(view);
  jobs(view);
  tables(view);
  charts(view);
  profile(view);
}

// --- the stream ----------------------------------------------------------------------------------------------------------

let heard = 0, over = false, source;

function alive(yes) {
  const text = yes ? "live" : over ? "ended" : "no connection, trying again";
  if ($("live").textContent !== text) $("live").textContent = text;
  $("live").className = yes || over ? "pill on" : "pill off";
}

function connect() {
  source = new EventSource("events");
  source.onmessage = (event) => {
    const view = JSON.parse(event.data);
    heard = Date.now();
    over = view.over;
    alive(true);
    draw(view);
  };
  source.addEventListener("beat", () => { heard = Date.now(); alive(true); });
  source.onerror = () => {
    alive(false);
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 1000); // it was refused; it tries no more by itself
  };
}

setInterval(() => { if (Date.now() - heard > SILENCE) alive(false); }, 500);
connect();
