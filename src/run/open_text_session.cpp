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

}  // namespace

void set_compute(std::span<const std::string> overrides, const std::string& verb, encoders::Compute& compute,
                 DType& precision) {
  for (const std::string& override : overrides) {
    const std::string key = override.substr(0, override.find('='));
    if (std::ranges::find(kComputeKeys, key) == kComputeKeys.end())
      user_error("{} has no effect on text generation; leave it out ({} uses {})", key, verb,
                 fmt::join(kComputeKeys, ", "));
  }
  const recipe::Recipe recipe = recipe::with_overrides(recipe::Recipe(), verb, recipe_choices(), overrides);
  precision = recipe.precision;
  const int num_threads = compute.num_threads;
  compute = tasks::compute_of(recipe, 0);
  if (recipe.threads == 0) compute.num_threads = num_threads;
}

infer::TextSession open_text_session(const fs::path& model, const std::optional<recipe::Recipe>& trained,
                                     const fs::path& base, infer::TextSessionOptions options,
                                     std::span<const std::string> overrides) {
  if (trained && tasks::task_of(*trained).model_format == tasks::ModelFormat::built_in)
    user_error("'{0}' is the run of an image model, not a language model; use hearth predict {0} IMAGE.png",
               model.string());
  set_compute(overrides, "hearth generate", options.generator.compute, options.generator.precision);
  options.chat = tasks::chat_options(trained ? trained->data : recipe::Data());
  return {hub::find_model(model, base), std::move(options)};
}

}  // namespace hearth::run
