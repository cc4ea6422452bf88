// Keys, dialogs, local times, drafts of forms, and the banner of a page that is stale.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ---- local times: added behind UTC where the browser's zone is another one
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  function localTimes(root) {
    for (const one of $$("time[data-local]", root)) {
      one.removeAttribute("data-local");
      const at = new Date(one.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      one.title = `${one.dateTime}\n${zone.format(at)} (${Intl.DateTimeFormat().resolvedOptions().timeZone})`;
    }
  }

  // ---- drafts: what was typed survives a session that ended, in this tab, for this person.
  // A page that is left writes its changed forms down. Only the login keeps them for the page behind it: a page
  // of a session that goes on finds none. What a person makes sure of (`data-unkept`) is asked for anew. A field that
  // comes filled in gets what was typed if the form is of the same page, such as of the same version of the policy.
  const LEFT = "drafts-left", ENDED = "drafts-ended";
  const SECRET = new Set(["password", "hidden", "file"]);
  const changed = new Set();
  const draftKey = (form) => [document.body.dataset.person, form.dataset.draft, form.closest("dialog")?.id].join(":");
  const kept = (form) => [...form.elements].filter((one) => one.name && !SECRET.has(one.type) && !("unkept" in one.dataset));
  const isTick = (one) => one.type === "checkbox" || one.type === "radio";
  const made = (form) => [...form.elements].filter((one) => one.type === "hidden" && !["csrf", "once"].includes(one.name))
    .map((one) => `${one.name}=${one.value}`).join("&");
  function restore(field, text) {
    const before = field.value;
    field.value = text;
    if (field.selectedIndex === -1) field.value = before;
  }
  function leaveDrafts() {
    const drafts = {};
    for (const form of [...changed].filter((one) => one.isConnected)) {
      const fields = {};
      for (const one of kept(form)) {
        if (!isTick(one)) fields[one.name] = one.value;
        else if (one.checked !== one.defaultChecked) fields[`${one.name}=${one.value}`] = one.checked;
      }
      drafts[draftKey(form)] = { fields, made: made(form), open: Boolean(form.closest("dialog")?.open) };
    }
    if (Object.keys(drafts).length) sessionStorage.setItem(LEFT, JSON.stringify(drafts));
  }
  function meetDrafts() {
    const left = sessionStorage.getItem(LEFT), ended = sessionStorage.getItem(ENDED);
    sessionStorage.removeItem(LEFT);
    if ($("form[action='/login']")) { if (left) sessionStorage.setItem(ENDED, left); return; }
    sessionStorage.removeItem(ENDED);
    const drafts = JSON.parse(ended || "{}");
    for (const form of $$("form[data-draft]")) {
      const draft = drafts[draftKey(form)];
      if (!draft) continue;
      const same = draft.made === made(form);
      for (const one of kept(form)) {
        const tick = `${one.name}=${one.value}`;
        if (isTick(one)) { if (tick in draft.fields) one.checked = draft.fields[tick]; }
        else if (one.name in draft.fields && (same || !one.value)) restore(one, draft.fields[one.name]);
      }
      changed.add(form);
      if (draft.open) form.closest("dialog")?.showModal();
    }
  }
  function dropDrafts(root) {
    for (const form of $$("form[data-draft]", root)) { form.reset(); changed.delete(form); }
  }
  function cancel(dialog) {
    dropDrafts(dialog);
    dialog.close();
  }
  window.addEventListener("pagehide", leaveDrafts);

  // ---- the banner: why the page keeps its last state
  // A cause is `part` or `live`; none is an action's or a page's, which the other two neither replace nor end.
  function stale(text, cause = "") {
    const banner = $("#stale");
    if (!banner || (cause && !banner.hidden && !banner.dataset.cause)) return;
    banner.dataset.cause = cause;
    banner.textContent = text;
    banner.hidden = !text;
  }
  const fresh = (cause) => { if ($("#stale")?.dataset.cause === cause) stale(""); };

  // ---- dialogs and menus
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-dialog],[data-close],[data-menu],[data-keys]");
    if (!target) return;
    if (target.dataset.dialog) document.getElementById(target.dataset.dialog)?.showModal();
    else if ("close" in target.dataset) cancel(target.closest("dialog"));
    else if ("keys" in target.dataset) $("#keys")?.showModal();
    else {
      const open = $("#nav").classList.toggle("open");
      target.setAttribute("aria-expanded", String(open));
    }
  });
  document.addEventListener("cancel", (event) => dropDrafts(event.target), true);
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (form?.dataset.draft) changed.add(form);
    const wanted = event.target.dataset?.typed;
    if (wanted) event.target.setCustomValidity(event.target.value.trim() === wanted ? "" : wanted);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.draft) changed.add(form);
    if ("forget" in form.dataset) { changed.clear(); sessionStorage.clear(); }
  });

  // ---- keys: / finds, ? explains, g and a letter go to a page
  let leader = 0;
  const typing = (one) => one.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(one.tagName);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if ($("dialog[open]")) return;
    if (event.key === "/") {
      const find = $("[data-find]");
      if (find) { event.preventDefault(); find.focus(); find.select(); }
    } else if (event.key === "?") $("#keys")?.showModal();
    else if (event.key === "g") { leader = event.timeStamp; return; }
    else if (leader && event.timeStamp - leader < 1500) {
      const link = $(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
    }
    leader = 0;
  });

  // ---- htmx: after a swap, and when an answer leaves the page as it is
  document.addEventListener("htmx:afterSettle", (event) => {
    localTimes(document);
    if (event.detail?.requestConfig?.boosted) { stale(""); changed.clear(); $("#main")?.focus({ preventScroll: true }); }
  });

  // ---- live streams: a browser has six connections to a console, and each stream takes one. So a hidden tab has none,
  // and the seventh tab loads.
  class VisibleSource {
    constructor(url) {
      this.url = url;
      this.heard = [];
      this.over = false;
      this.follow = () => document.hidden ? this.rest() : this.begin();
      document.addEventListener("visibilitychange", this.follow);
      this.follow();
    }
    get readyState() { return this.over ? EventSource.CLOSED : this.source?.readyState ?? EventSource.CONNECTING; }
    begin() {
      if (this.source) return;
      const source = this.source = new EventSource(this.url, { withCredentials: true });
      source.onopen = (event) => this.onopen?.(event);
      source.onerror = (event) => {
        if (source.readyState === EventSource.CLOSED) this.close();
        this.onerror?.(event);
      };
      for (const [name, hear] of this.heard) source.addEventListener(name, hear);
    }
    rest() {
      this.source?.close();
      this.source = null;
    }
    close() {
      this.over = true;
      document.removeEventListener("visibilitychange", this.follow);
      this.rest();
    }
    addEventListener(name, hear) {
      this.heard.push([name, hear]);
      this.source?.addEventListener(name, hear);
    }
    removeEventListener(name, hear) {
      this.heard = this.heard.filter((one) => one[0] !== name || one[1] !== hear);
      this.source?.removeEventListener(name, hear);
    }
  }
  htmx.createEventSource = (url) => new VisibleSource(url);

  // ---- live parts: updates replace them. A click counts only if its link is still there when the button goes up,
  // so updates are left out while it is down, for HELD_MS at most: a menu may take the release. htmx forgets what it
  // knows of a link that was replaced, and then shows the answer without its address: so updates wait for it, too.
  // The focus stays.
  const HELD_MS = 5000;
  const asked = new Set();
  let pressedAt = -Infinity, focused = "";
  document.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.target.closest?.("[sse-swap]")) pressedAt = performance.now();
  }, true);
  for (const end of ["pointerup", "pointercancel"]) {
    document.addEventListener(end, () => setTimeout(() => { pressedAt = -Infinity; }), true);
  }
  document.addEventListener("htmx:beforeSend", (event) => {
    if (event.detail.elt.closest?.("[sse-swap]")) asked.add(event.detail.xhr);
  });
  document.addEventListener("htmx:afterRequest", (event) => { asked.delete(event.detail.xhr); });
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (asked.size || performance.now() - pressedAt < HELD_MS) { event.preventDefault(); return; }
    focused = document.activeElement?.closest("[sse-swap] a[href]")?.getAttribute("href") || "";
  });
  // A stream ends now and then, and the browser opens it again. It is not live if it is refused, as after the session's
  // end, or broken again before it was open.
  let broken = 0;
  document.addEventListener("htmx:sseError", (event) => {
    broken += 1;
    if (broken > 1 || event.detail.source.readyState === EventSource.CLOSED) stale($("#stale")?.dataset.live || "", "live");
  });
  document.addEventListener("htmx:sseOpen", () => {
    broken = 0;
    fresh("live");
  });
  document.addEventListener("htmx:sseMessage", () => {
    localTimes(document);
    if (focused) $(`[sse-swap] a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const asked = event.detail.requestConfig, answer = event.detail.xhr;
    const form = asked?.elt?.closest?.("form[data-draft]");
    if (form && event.detail.successful && answer.status < 400) changed.delete(form);
    const reason = answer?.getResponseHeader?.("x-hongyan-reason");
    if (reason) {
      keep(decodeURIComponent(reason), asked);
    }
  });

  // ---- errors: their page is shown. The page of before stays, with a banner, if the error comes with the reason for it,
  // has no page, or was the answer to a part, which asks by itself and must not shut what a person has open.
  function keep(reason, asked) {
    stale(reason, asked.boosted ? "" : "part");
    if (!asked.boosted) return;
    $$("dialog[open]").forEach((one) => one.close());
    $("#main")?.scrollIntoView();
  }
  // A job's page is loaded again when the job moves; not while a person types into a dialog: the next poll asks again.
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if ($("dialog[open]") && event.detail.xhr.getResponseHeader("hx-refresh")) event.preventDefault();
  });
  const unanswered = ({ detail }) => keep($("#stale")?.dataset[detail.requestConfig.verb] || "", detail.requestConfig);
  document.addEventListener("htmx:sendError", unanswered);
  document.addEventListener("htmx:beforeSwap", (event) => {
    const answer = event.detail.xhr, asked = event.detail.requestConfig;
    if (answer.status < 400) { if (!asked.boosted) fresh("part"); return; }
    const explained = answer.getResponseHeader("x-hongyan-reason");
    const page = asked.boosted && (answer.getResponseHeader("content-type") || "").startsWith("text/html");
    if (page && !explained) return;
    event.detail.shouldSwap = false;
    if (!explained) unanswered(event);
  });

  // ---- charts: <div class="chart" data-chart='{"title":…,"unit":…,"series":[…],"data":[[…],…]}'>, times in UTC
  // The window knows each chart until it is destroyed: a page that stays open draws new ones every few seconds.
  const drawn = new Map();
  function endCharts() {
    for (const [element, { chart, observer }] of drawn) {
      if (element.isConnected) continue;
      observer.disconnect();
      chart.destroy();
      drawn.delete(element);
    }
  }
  const stamp = (seconds) => new Date(seconds * 1e3).toISOString();
  function charts(root) {
    if (!window.uPlot) return;
    endCharts();
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim(), grid = style.getPropertyValue("--line").trim();
    const colours = ["--accent", "--bad", "--good", "--warn", "--info"].map((name) => style.getPropertyValue(name).trim());
    for (const one of $$("[data-chart]", root)) {
      if (one.dataset.drawn) continue;
      one.dataset.drawn = "1";
      const wanted = JSON.parse(one.dataset.chart);
      const times = wanted.data[0], long = times.at(-1) - times[0] > 36 * 3600, unit = wanted.unit ? ` ${wanted.unit}` : "";
      const label = (at) => long ? stamp(at).slice(5, 16).replace("T", " ") : stamp(at).slice(11, 16);
      const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
      const chart = new uPlot({
        width: one.clientWidth || 600, height: wanted.height || 220, title: wanted.title,
        tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
        series: [{ label: "UTC", value: (_, at) => at == null ? "–" : stamp(at).slice(0, 16).replace("T", " ") },
          ...wanted.series.map((name, index) => ({
            label: name, stroke: colours[index % colours.length], width: 1.5, dash: index ? [2 + 4 * index, 3] : undefined,
            value: (_, value) => value == null ? "–" : `${+value.toPrecision(3)}${unit}` }))],
        scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1e-3)] } },
        axes: [{ ...axis, space: long ? 90 : 50, values: (_, all) => all.map(label) }, { ...axis, size: 60 }],
      }, wanted.data, one);
      const observer = new ResizeObserver(() => chart.setSize({ width: one.clientWidth, height: wanted.height || 220 }));
      observer.observe(one);
      drawn.set(one, { chart, observer });
    }
  }
  document.addEventListener("htmx:afterSettle", () => charts(document));

  // ---- what was unfolded stays so when its part of the page is renewed
  let unfolded = [];
  document.addEventListener("htmx:beforeSwap", (event) => { unfolded = $$("details[open][id]", event.detail.target).map((one) => one.id); });
  document.addEventListener("htmx:afterSwap", () => { for (const id of unfolded) document.getElementById(id)?.setAttribute("open", ""); });

  // ---- completion: <input role="combobox" data-complete="URL" aria-controls="LIST" aria-describedby="WORDS">
  // The line is sent by POST alone. Arrows choose, Enter or Tab takes, Escape closes.
  function completion(input) {
    if (input.dataset.ready) return;
    input.dataset.ready = "1";
    const list = document.getElementById(input.getAttribute("aria-controls"));
    const words = document.getElementById(input.getAttribute("aria-describedby"));
    let options = [], at = -1, timer = 0, asked = 0;
    const close = () => { list.hidden = true; at = -1; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };
    const choose = (next) => {
      at = (next + options.length) % options.length;
      [...list.children].forEach((one, index) => one.setAttribute("aria-selected", String(index === at)));
      input.setAttribute("aria-activedescendant", list.children[at].id);
      list.children[at].scrollIntoView({ block: "nearest" });
    };
    const take = (index) => {
      const one = options[index];
      input.value = input.value.slice(0, one.start) + one.text + (one.text.endsWith(":") ? "" : " ");
      close(); input.focus(); ask();
    };
    const show = (answer) => {
      if (words) words.textContent = answer.problem || answer.words || words.textContent;
      options = answer.options;
      list.replaceChildren(...options.map((one, index) => {
        const item = document.createElement("li"), name = document.createElement("code"), help = document.createElement("span");
        item.id = `${list.id}-${index}`; item.role = "option"; item.setAttribute("aria-selected", "false");
        name.textContent = one.text; help.textContent = one.help;
        item.append(name, help);
        item.addEventListener("mousedown", (event) => { event.preventDefault(); take(index); });
        return item;
      }));
      at = -1;
      list.hidden = !options.length || document.activeElement !== input;
      input.setAttribute("aria-expanded", String(!list.hidden));
    };
    async function ask() {
      const mine = ++asked, sent = { q: input.value, csrf: input.form.elements.csrf.value };
      try {
        const answer = await fetch(input.dataset.complete, { method: "POST", body: new URLSearchParams(sent) });
        if (answer.ok && mine === asked) show(await answer.json());
      } catch { close(); }
    }
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 120); });
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" && list.hidden) { event.preventDefault(); ask(); return; }
      if (list.hidden) return;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); choose(at < 0 && event.key === "ArrowUp" ? -1 : at + (event.key === "ArrowDown" ? 1 : -1)); }
      else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) { event.preventDefault(); take(at); }
      else if (event.key === "Escape") { event.preventDefault(); close(); }
    });
  }
  const completions = () => $$("[data-complete]").forEach(completion);
  document.addEventListener("htmx:afterSettle", completions);

  document.addEventListener("DOMContentLoaded", () => { completions(); localTimes(document); meetDrafts(); charts(document); });
})();
