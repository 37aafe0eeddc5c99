#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "engine/engine.h"
#include "hub/floats.h"
#include "hub/model_folder.h"
#include "io/weight_files.h"
#include "recipe/recipe.h"

namespace hearth::hub {

/// Returns the name in the files of the model's tensor `name`. The original GPT-2 files omit the prefix
/// "transformer.".
std::string name_in(const io::WeightFiles& files, const std::string& name);

/// Throws a UserError if the files have a tensor that is not in `used`, except for tensors without effect:
/// buffers that older versions of transformers saved, and a head equal to the tied embedding table.
void check_leftovers(const io::WeightFiles& files, const std::set<std::string>& used, const fs::path& path);

/// Throws a UserError that says that a tensor has infinite or NaN values.
[[noreturn]] void refuse_not_finite(const fs::path& path, std::string_view name);

/// True if the engine trains an adapter. Its weights files then contain only the adapter, under PEFT's names.
bool has_adapter(const engine::Engine& engine);
/// Returns the name of the file with the last weights in a run folder.
const char* weights_name(const engine::Engine& engine);

/// Returns the dtype that most values in a model folder or weight file have.
DType main_dtype(const fs::path& model);
/// Returns the dtype of weights that a config.json contains; f32 if it has none or one that Hearth does not
/// write. `where`: name of the file in messages.
DType config_dtype(std::string_view json, const std::string& where);

/// Writes the engine's weights and running statistics with torch's names and layouts, one tensor in memory at
/// a time. `average`: true to write the moving average (EMA) of the weights, if there is one. `dtype`: dtype
/// of the file, except for low-rank matrices and tensors with values beyond the range of f16, which are f32.
void save_weights(const engine::Engine& engine, const fs::path& path, bool average, DType dtype = DType::f32);

/// Loads a file written by save_weights(), in f32, bf16, f16 or f64. Throws a UserError if a tensor is
/// missing or has another shape.
void load_weights(engine::Engine& engine, const fs::path& path);

/// Loads one tensor into the engine's memory. `name`: its name in `files`. Throws a UserError if it is
/// missing or has another shape. `path`: name of the files in messages.
void load_tensor(engine::Engine& engine, const nn::Tensor& tensor, const std::string& name,
                 const io::WeightFiles& files, const fs::path& path);

/// Throws a UserError if the files of a model or its adapter cannot be opened. Call this before slow work, so
/// that the error comes early.
void check_weights(const ModelFolder& model);

/// Reads a tensor from weight files and converts it to f32 in memory order. Throws a UserError if it is
/// missing, has another shape or is not finite. `path`: name of the files in messages.
std::vector<float> memory_values(const io::WeightFiles& files, const fs::path& path,
                                 const nn::Tensor& tensor);

/// Initializes the frozen weights of the base model with random values from the engine's seed, for benchmarks
/// of adapters without a base model. Engine::initialize() does not set them, because they usually come from
/// files.
void initialize_frozen(engine::Engine& engine);
/// Loads the base model, without an adapter, from a file or folder.
void load_model(engine::Engine& engine, const fs::path& path);
/// Loads the teacher that runs during training from a model without an adapter. `has_more`: true if the file
/// may have tensors that the teacher does not need, such as an auxiliary head's.
void load_teacher(engine::Engine& engine, const fs::path& path, bool has_more);
/// Loads a model, and its adapter if the engine has one.
void load_model(engine::Engine& engine, const ModelFolder& model);

}  // namespace hearth::hub
