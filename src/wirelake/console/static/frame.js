// On every page: the light or dark theme, from the system setting or the user's choice.

const THEME_KEY = "wirelake.theme";

function show(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

show(localStorage.getItem(THEME_KEY));
document.querySelector("#theme")?.addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  localStorage.setItem(THEME_KEY, next);
  show(next);
});
