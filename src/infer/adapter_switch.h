#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace hearth::infer {

/// An adapter that can be selected by name.
struct NamedAdapter {
  std::string name;
  fs::path path;  ///< folder of the adapter or its weights file
};

/// Adapters of one base model. Copies the weights of the selected adapter into the memory of an engine.
class AdapterSwitch {
 public:
  AdapterSwitch() = default;
  /// Reads the weights of the adapters. Adapter 0 has the weights that the engine contains now. Throws a
  /// UserError if an adapter does not have the same modules, ranks and scales as the engine's.
  AdapterSwitch(engine::Engine& engine, std::span<const NamedAdapter> adapters);

  /// Returns the index of an adapter; 0 for an empty name. Throws a UserError for an unknown name.
  int32_t index_of(std::string_view name) const;
  /// Copies the weights of an adapter to the engine, unless the engine has them already. On a GPU this
  /// uploads the full model.
  void use(engine::Engine& engine, int32_t index);

 private:
  std::vector<std::string> names_;               ///< name of adapter i + 1
  std::vector<std::vector<std::byte>> weights_;  ///< weights of adapter i, in the order of the layout
  int32_t current_ = 0;
};

}  // namespace hearth::infer
