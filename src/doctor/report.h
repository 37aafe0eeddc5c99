#pragma once

#include <string>
#include <vector>

#include "doctor/deep.h"
#include "doctor/doctor.h"

namespace hearth::doctor {

/// Formats the report as text: facts about the machine, then the findings, worst last. Findings that are not
/// ok have cost, fix and documentation page.
std::string to_text(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings);

/// Formats the findings as a JSON object {"hearth", "machine": {...}, "gpus": [...], "findings": [...],
/// "status"}.
std::string to_json(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings);

/// Formats a self-contained HTML page to attach to bug reports. It has no scripts, external links, serial
/// numbers, host names or user names. `findings` must include the findings of `deep`.
std::string to_page(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings, const DeepResult& deep);

}  // namespace hearth::doctor
