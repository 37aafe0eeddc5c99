#include <cstdlib>

#include "base/error.h"
#include "recipe/recipe_file.h"

using hearth::recipe::parse_recipe;
using hearth::recipe::write_recipe;

/// A recipe that is accepted must read back as itself.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const hearth::recipe::Choices choices{
      .names = {{"model.name", {"mlp", "resnet18"}}, {"optimizer.name", {"adamw", "sgd"}}},
      .is_gpu = [](std::string_view name) { return name.starts_with("gpu"); }};
  const std::string yaml(reinterpret_cast<const char*>(data), size);
  try {
    const std::string written = write_recipe(parse_recipe(yaml, "fuzz", choices));
    if (write_recipe(parse_recipe(written, "again", choices)) != written) std::abort();
  } catch (const hearth::UserError&) {
  }
  return 0;
}
