#pragma once

#include <optional>

#include "infer/text_session.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Sets where and how a language model computes from recipe keys KEY=VALUE (device, precision, self_test,
/// record, reserve, threads). Keeps the number of threads if the keys do not set it. Throws a UserError for
/// other keys. `verb`: the command in messages.
void set_compute(std::span<const std::string> overrides, const std::string& verb, encoders::Compute& compute,
                 DType& precision);

/// Opens a language model. `overrides`: see set_compute(). `model`: a model folder, a run, or
/// an adapter; `trained`: recipe_of_run(model). `base`: folder of the adapter's base model; empty: the one in
/// its adapter_config.json. The chat template of a run gets the date and the variables of its recipe. Throws
/// a UserError if the run has an image model.
infer::TextSession open_text_session(const fs::path& model, const std::optional<recipe::Recipe>& trained,
                                     const fs::path& base, infer::TextSessionOptions options,
                                     std::span<const std::string> overrides = {});

}  // namespace hearth::run
