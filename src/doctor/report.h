#pragma once

#include <string>
#include <vector>

#include "doctor/deep.h"
#include "doctor/doctor.h"

namespace hearth::doctor {

/// What was found, for people: the machine, then a line per finding with its cost, its fix and its page where
/// it is not ok, the worst last.
std::string to_text(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings);

/// The same as one JSON object: {"hearth", "machine": {...}, "gpus": [...], "findings": [...], "status"}.
std::string to_json(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings);

/// A page without scripts or links to anywhere, fit for a bug report: no serial numbers, host or user names.
/// `findings` are all, those of `deep` among them.
std::string to_page(const system::Machine& machine, const Program* program,
                    const std::vector<Finding>& findings, const DeepResult& deep);

}  // namespace hearth::doctor
