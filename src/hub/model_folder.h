#pragma once

#include "base/file.h"

namespace hearth::hub {

/// Locations of the parts of a model that is named on the command line.
struct ModelFolder {
  fs::path model;    ///< folder with config.json, and usually the weights
  fs::path weights;  ///< equal to `model`, or a file with the weights
  fs::path adapter;  ///< folder or file of a PEFT adapter; empty: none
  fs::path text;     ///< folder with tokenizer and chat template

  /// Returns the path that messages show for the weights: the adapter if there is one, otherwise `weights`.
  const fs::path& named_weights() const { return adapter.empty() ? weights : adapter; }
};

/// Returns the weights file of a run: the best weights if it has any, otherwise the last ones. `adapter`:
/// true if the run trains an adapter.
fs::path run_weights(const fs::path& run, bool adapter);
/// True if a folder has a tokenizer.
bool has_tokenizer(const fs::path& folder);

/// Finds the parts of a model from a transformers folder, a GGUF file, a run, or an adapter (folder or file).
/// `base`: base model of an adapter; empty: the one in its adapter_config.json. Throws a UserError if a part
/// is missing, or if `base` is set although `given` is not an adapter.
ModelFolder find_model(const fs::path& given, const fs::path& base = {});
/// Finds the parts of an adapter and its base model, as find_model() does. Throws a UserError if `adapter` is
/// not an adapter.
ModelFolder find_adapted_model(const fs::path& adapter, const fs::path& base = {});

}  // namespace hearth::hub
