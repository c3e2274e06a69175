'use strict';

/** Cuts a stream of text chunks into lines. */
class Lines {
  #rest = '';

  /** The lines that `chunk` completes, without their ends. */
  push(chunk) {
    const parts = (this.#rest + chunk).split(/\r?\n/);
    this.#rest = parts.pop();
    return parts;
  }

  /** The last line, if it has no end; a list of none or one. */
  end() {
    const rest = this.#rest;
    this.#rest = '';
    return rest === '' ? [] : [rest];
  }
}

module.exports = { Lines };
