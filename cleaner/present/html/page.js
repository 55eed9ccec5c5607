// Keeps the page up to date: reads it again every few seconds and puts in what changed. Without it the page is whole too.
(() => {
  "use strict";
  const EVERY_MS = 3000, PATIENCE_MS = 10000;
  let timer = 0, running = false, lastGood = Date.now();

  const say = (words, tone) => {
    const place = document.getElementById("live");
    if (place) {
      place.textContent = words;
      place.className = "live " + tone;
    }
  };

  // What the reader is in the middle of stays: a field, a selection, an open fold.
  const isBusy = (part) => {
    const selection = document.getSelection();
    return part.contains(document.activeElement) && document.activeElement.matches("input, select") ||
      (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
  };

  const take = (fresh) => {
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || isBusy(part)) continue;
      for (const fold of part.querySelectorAll("details[open][id]")) {
        const same = next.querySelector("#" + CSS.escape(fold.id));
        if (same) same.open = true;
      }
      if (part.outerHTML === next.outerHTML) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.replaceWith(document.adoptNode(next));
      if (focused) {
        const again = [...document.getElementById(next.id).querySelectorAll("a")].find((a) => a.getAttribute("href") === focused);
        if (again) again.focus({ preventScroll: true });
      }
    }
    document.title = fresh.title;
  };

  const look = async () => {
    if (running || document.hidden) return;
    running = true;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
      if (!answer.ok) throw new Error(answer.status);
      take(new DOMParser().parseFromString(await answer.text(), "text/html"));
      lastGood = Date.now();
      say("live", "good");
      document.body.classList.remove("stale");
    } catch {
      say("no answer for " + Math.round((Date.now() - lastGood) / 1000) + " s", "bad");
      document.body.classList.add("stale");
    }
    running = false;
  };

  const follow = () => {
    clearInterval(timer);
    if (document.hidden) {
      say("paused", "quiet");
      return;
    }
    look();
    timer = setInterval(look, EVERY_MS);
  };

  for (const select of document.querySelectorAll("#find select")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  document.addEventListener("visibilitychange", follow);
  say("live", "good");
  timer = setInterval(look, EVERY_MS);
})();
