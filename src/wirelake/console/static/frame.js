// What every page has: light or dark, by the machine's setting or the person's choice.

const KEPT = "wirelake.theme";

function show(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

show(localStorage.getItem(KEPT));
document.querySelector("#theme")?.addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  localStorage.setItem(KEPT, next);
  show(next);
});
