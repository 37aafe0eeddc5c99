#include "doctor/doctor.h"

#include <algorithm>

#include "doctor/checks.h"

namespace hearth::doctor {

std::vector<Finding> examine(const system::Machine& machine, const Program* program) {
  Findings found;
  check_gpus(machine, found);
  check_drivers(machine, found);
  check_access(machine, found);
  check_links(machine, found);
  check_known_bad(machine, found);
  check_runtimes(machine, program, found);
  check_variables(machine, found);
  if (program != nullptr) check_program(machine, *program, found);
  check_host(machine, found);
  check_log(machine, found);
  return found;
}

bool has_amd(const Machine& machine) { return std::ranges::any_of(machine.gpus, is_amd); }
bool has_nvidia(const Machine& machine) { return !std::ranges::all_of(machine.gpus, is_amd); }
int64_t num_discrete(const Machine& machine) {
  return std::ranges::count(machine.gpus, false, &PciGpu::integrated);
}

}  // namespace hearth::doctor
