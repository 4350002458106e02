// Chooses light or dark before anything is drawn; the system's choice unless the switch was used.
"use strict";
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("sparkbolt-theme");
  } catch {
    // without storage the system's choice stays
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
