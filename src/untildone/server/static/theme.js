// Before anything is painted: the theme that was chosen here, if one was.
try {
  const chosen = localStorage.getItem("untildone-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* A browser that remembers nothing follows the system. */ }
