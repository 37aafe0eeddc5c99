#include "run/open_text_session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "run/from_recipe.h"
#include "tasks/device_options.h"
#include "tasks/language/text_source.h"

namespace hearth::run {
namespace {

constexpr auto kComputeKeys =
    std::to_array<std::string_view>({"device", "precision", "self_test", "record", "reserve", "threads"});

/// Sets the device, precision and threads of a language model from overrides of recipe keys (kComputeKeys).
void set_compute(std::span<const std::string> overrides, infer::GeneratorOptions& options) {
  for (const std::string& override : overrides) {
    const std::string key = override.substr(0, override.find('='));
    if (std::ranges::find(kComputeKeys, key) == kComputeKeys.end())
      user_error("{} has no effect on text generation; leave it out (hearth generate uses {})", key,
                 fmt::join(kComputeKeys, ", "));
  }
  const recipe::Recipe recipe =
      recipe::with_overrides(recipe::Recipe(), "hearth generate", recipe_choices(), overrides);
  options.precision = recipe.precision;
  const int num_threads = options.compute.num_threads;
  options.compute = tasks::compute_of(recipe, 0);
  if (recipe.threads == 0) options.compute.num_threads = num_threads;
}

}  // namespace

infer::TextSession open_text_session(const fs::path& model, const std::optional<recipe::Recipe>& trained,
                                     const fs::path& base, infer::TextSessionOptions options,
                                     std::span<const std::string> overrides) {
  if (trained && tasks::task_of(*trained).model_format == tasks::ModelFormat::built_in)
    user_error("'{0}' is the run of an image model, not a language model; use hearth predict {0} IMAGE.png",
               model.string());
  set_compute(overrides, options.generator);
  options.chat = tasks::chat_options(trained ? trained->data : recipe::Data());
  return {hub::find_model(model, base), std::move(options)};
}

}  // namespace hearth::run
