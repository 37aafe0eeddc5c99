#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/program.h"
#include "system/machine.h"

/// The checks that examine() performs. Each function appends its findings to `found`.
namespace hearth::doctor {

using system::Machine;
using system::PciGpu;
using Findings = std::vector<Finding>;

void check_gpus(const Machine& machine, Findings& found);
void check_links(const Machine& machine, Findings& found);
void check_access(const Machine& machine, Findings& found);
void check_drivers(const Machine& machine, Findings& found);
/// Checks the installed runtimes. A runtime that `program` could load is not reported as missing, wherever it
/// is installed. If `program` is null, only files are examined.
void check_runtimes(const Machine& machine, const Program* program, Findings& found);
/// Checks environment variables that affect the GPU runtimes.
void check_variables(const Machine& machine, Findings& found);
void check_host(const Machine& machine, Findings& found);
void check_log(const Machine& machine, Findings& found);
/// Checks the machine against known_bad.yaml, the table of combinations that are known to fail.
void check_known_bad(const Machine& machine, Findings& found);
void check_program(const Machine& machine, const Program& program, Findings& found);

inline bool is_amd(const PciGpu& gpu) { return gpu.vendor == PciGpu::Vendor::amd; }
bool has_amd(const Machine& machine);
bool has_nvidia(const Machine& machine);
/// Returns the number of AMD and NVIDIA GPUs with dedicated memory.
int64_t num_discrete(const Machine& machine);

}  // namespace hearth::doctor
