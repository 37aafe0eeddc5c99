#pragma once

#include "base/file.h"

namespace hearth::hub {

/// A model as commands name it, and where its parts are.
struct ModelFolder {
  fs::path model;    ///< a transformers folder: config.json and weights
  fs::path weights;  ///< that folder, or a file of other weights for it
  fs::path adapter;  ///< a PEFT adapter on top of it, as its folder or file; empty: none
  fs::path text;     ///< the folder with tokenizer and chat template

  /// The weights that tell this model from others, for people: the adapter's, or its own.
  const fs::path& named_weights() const { return adapter.empty() ? weights : adapter; }
};

/// The weights that commands take of a run: its best where there are some, else its last, which are an
/// adapter's or a model's.
fs::path run_weights(const fs::path& run, bool adapter);
/// Whether a folder has a tokenizer.
bool has_tokenizer(const fs::path& folder);

/// The parts of a transformers folder, of a run, or of an adapter (its folder or file), whose base is `base`
/// or else the one that its config names; of a run, run_weights. UserError when there is no such folder.
ModelFolder find_model(const fs::path& given, const fs::path& base = {});
/// The same for what must be an adapter.
ModelFolder find_adapted_model(const fs::path& adapter, const fs::path& base = {});

}  // namespace hearth::hub
