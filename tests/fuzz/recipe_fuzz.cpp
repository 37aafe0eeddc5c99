#include <cstdlib>

#include "base/error.h"
#include "run/from_recipe.h"

/// A recipe that is accepted must read back as itself.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string yaml(reinterpret_cast<const char*>(data), size);
  try {
    const std::string written = hearth::recipe::write_recipe(hearth::run::parse_recipe(yaml, "fuzz"));
    if (hearth::recipe::write_recipe(hearth::run::parse_recipe(written, "again")) != written) std::abort();
  } catch (const hearth::UserError&) {
  }
  return 0;
}
