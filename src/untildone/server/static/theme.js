// Before anything is painted: that scripts run here, and the theme that was chosen, if one was.
document.documentElement.dataset.scripted = "";
try {
  const chosen = localStorage.getItem("untildone-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* A browser that remembers nothing follows the system. */ }
