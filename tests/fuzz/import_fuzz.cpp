#include <cstdlib>

#include "base/error.h"
#include "convert/import.h"
#include "recipe/recipe_file.h"

/// The first byte chooses YAML, TOML or JSON. An imported recipe is valid, or its fault is reported.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  static const recipe::Choices choices{
      .names = {{"model.name", {"mlp", "resnet18", "yolox_nano"}}, {"optimizer.name", {"adamw", "sgd"}}}};
  if (size == 0) return 0;
  constexpr const char* kFiles[] = {"fuzz.yaml", "fuzz.toml", "fuzz.json"};
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const convert::Imported imported = convert::import_config(
        text, kFiles[data[0] % 3], {.choices = choices, .updates = 100, .reads_files = false});
    if (imported.keys.empty()) std::abort();
    if (imported.fault.empty()) recipe::parse_recipe(imported.recipe, "imported", choices);
  } catch (const UserError&) {
  }
  return 0;
}
