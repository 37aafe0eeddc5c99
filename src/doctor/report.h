#pragma once

#include <string>
#include <vector>

#include "doctor/deep.h"
#include "doctor/doctor.h"

namespace hearth::doctor {

/// Formats the findings as text: the machine, then each finding (worst last) with its cost, fix and page
/// unless it is ok.
std::string to_text(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings);

/// Formats the findings as a JSON object {"hearth", "machine": {...}, "gpus": [...], "findings": [...],
/// "status"}.
std::string to_json(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings);

/// Formats a self-contained HTML page for bug reports, without scripts, external links, serial numbers, host
/// and user names. `findings` must include those of `deep`.
std::string to_page(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings, const DeepResult& deep);

}  // namespace hearth::doctor
