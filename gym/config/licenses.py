"""Names of licences that data sets carry.

Owns what a `license` is checked against: SPDX expressions, and the names that this ecosystem's data
sets use; the identifiers that are common for data and code are suggested. The licence is free text:
a name that is not known is doubtful and never stops a run.
"""

from gym.config.errors import closest

_SPDX = """
    0BSD AFL-3.0 AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 Artistic-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC-BY-2.0
    CC-BY-3.0 CC-BY-4.0 CC-BY-NC-2.0 CC-BY-NC-3.0 CC-BY-NC-4.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-3.0 CC-BY-NC-SA-4.0
    CC-BY-ND-4.0 CC-BY-SA-2.5 CC-BY-SA-3.0 CC-BY-SA-4.0 CC0-1.0 CDLA-Permissive-1.0 CDLA-Permissive-2.0 CDLA-Sharing-1.0
    ECL-2.0 EPL-2.0 EUPL-1.2 GFDL-1.3-only GFDL-1.3-or-later GPL-2.0-only GPL-2.0-or-later GPL-3.0-only GPL-3.0-or-later
    ISC LGPL-2.1-only LGPL-2.1-or-later LGPL-3.0-only LGPL-3.0-or-later MIT MIT-0 MPL-2.0 MS-PL NCSA ODC-By-1.0 ODbL-1.0
    OFL-1.1 OSL-3.0 PDDL-1.0 PostgreSQL Python-2.0 Unlicense WTFPL Zlib
    """
SPDX = tuple(_SPDX.split())
ECOSYSTEM = (
    "Apache 2.0",
    "CC BY-NC 3.0",
    "CC BY-SA 4.0",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "GNU General Public License v3.0",
    "NVIDIA Evaluation Dataset License Agreement",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "TBD",
)
_KNOWN = {name.lower(): name for name in (*SPDX, *ECOSYSTEM)}


def license_hint(text: str) -> str | None:
    """None for a known name, else a hint.

    `A OR B`, `A AND B` and a remark in brackets, as in `MIT (code only)`, are known where their parts are.
    """
    bare = text.partition("(")[0].strip()
    parts = [part.strip() for part in bare.replace(" AND ", " OR ").split(" OR ")]
    unknown = [part for part in parts if part.lower() not in _KNOWN and not part.startswith("LicenseRef-")]
    if bare.lower() in _KNOWN or not unknown or _is_spdx(bare):
        return None
    near = closest(unknown[0].lower(), _KNOWN)
    return f"did you mean '{_KNOWN[near]}'?" if near is not None else "use an SPDX identifier, or LicenseRef-<name> for terms of its own"


def _is_spdx(text: str) -> bool:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression  # here: only for a name that is not common

    try:
        canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return False
    return True
