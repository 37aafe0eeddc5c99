#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/file.h"
#include "engine/engine.h"
#include "hub/floats.h"
#include "hub/model_folder.h"
#include "io/weight_files.h"
#include "recipe/recipe.h"

namespace hearth::hub {

/// Returns the name of a model's tensor in its files. The original GPT-2 files omit the prefix
/// "transformer.".
std::string name_in(const io::WeightFiles& files, const std::string& name);

/// Throws a UserError if the files have a tensor that is not in `used`, except for tensors without effect:
/// buffers that older versions of transformers saved, and a head equal to the tied embedding table.
void check_leftovers(const io::WeightFiles& files, const std::set<std::string>& used, const fs::path& path);

/// Throws a UserError for a tensor with non-finite values.
[[noreturn]] void refuse_not_finite(const fs::path& path, std::string_view name);

/// True if the engine trains an adapter. Its weights files then contain only the adapter, under PEFT's names.
bool has_adapter(const engine::Engine& engine);
/// Returns the file name of the last weights in a run folder.
const char* weights_name(const engine::Engine& engine);

/// Returns the dtype of most of the values in a model folder or a weight file.
DType main_dtype(const fs::path& model);
/// Returns the dtype of weights in a config.json; f32 if it has none that Hearth writes. `where`: name of the
/// file in messages.
DType config_dtype(std::string_view json, const std::string& where);

/// Writes weights and running statistics with torch's names and layouts, one tensor in memory at a time.
/// `average`: writes their moving average (EMA), if there is one. `dtype`: dtype of the file, except for
/// low-rank matrices and tensors whose values exceed f16, which are f32.
void save_weights(const engine::Engine& engine, const fs::path& path, bool average, DType dtype = DType::f32);

/// Loads the tensors of save_weights(), in f32, bf16, f16 or f64. Throws a UserError if a tensor is missing
/// or has another shape.
void load_weights(engine::Engine& engine, const fs::path& path);

/// Loads a tensor, which has the name `name` in `files`. Throws a UserError if it is missing or has another
/// shape. `path`: name of the files in messages.
void load_tensor(engine::Engine& engine, const nn::Tensor& tensor, const std::string& name,
                 const io::WeightFiles& files, const fs::path& path);

/// Throws a UserError if the files of a model or its adapter cannot be opened. Call before slow work.
void check_weights(const ModelFolder& model);

/// Initializes the frozen weights under an adapter with random values from the engine's seed.
/// Engine::initialize does not set them, because they usually come from files.
void initialize_frozen(engine::Engine& engine);
/// Loads the base model, without an adapter, from a file or folder.
void load_model(engine::Engine& engine, const fs::path& path);
/// Loads a model, and its adapter if the engine has one.
void load_model(engine::Engine& engine, const ModelFolder& model);

}  // namespace hearth::hub
