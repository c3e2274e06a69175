'use strict';

/**
 * A name that can stand in an address: lower case, words joined by dashes.
 * @param {string} text
 * @param {{separator?: string, max?: number}} [options] `max` is the longest result, in characters.
 */
function slug(text, options = {}) {
  const { separator = '-', max = Infinity } = options;
  const words = text
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== '');
  return words.join(separator).slice(0, max);
}

module.exports = { slug };
