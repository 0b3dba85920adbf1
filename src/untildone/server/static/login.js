// The page after "Log in": what lets this browser steer stays in it, where only pages of this address and port can read it.
"use strict";

try {
  localStorage.setItem("untildone-proof", document.querySelector('meta[name="untildone-proof"]').content);
  location.replace("/");
} catch {
  document.querySelector("main p").textContent = "This browser keeps nothing for this page, so it can look at runs, not steer them. Allow site data for it, and log in again.";
}
