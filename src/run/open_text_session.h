#pragma once

#include <optional>

#include "infer/text_session.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Opens a language model. `overrides`: recipe keys KEY=VALUE for where and how it computes (device,
/// precision, self_test, record, reserve, threads); UserError for others. `model`: a model folder, a run, or
/// an adapter; `trained`: recipe_of_run(model). `base`: folder of the adapter's base model; empty: the one in
/// its adapter_config.json. The chat template of a run gets the date and the variables of its recipe. Throws
/// a UserError if the run has an image model.
infer::TextSession open_text_session(const fs::path& model, const std::optional<recipe::Recipe>& trained,
                                     const fs::path& base, infer::TextSessionOptions options,
                                     std::span<const std::string> overrides = {});

}  // namespace hearth::run
