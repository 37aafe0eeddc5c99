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

/// What files call a tensor of the model: those of the first GPT-2 leave the outermost name out.
std::string name_in(const io::WeightFiles& files, const std::string& name);

/// UserError for a tensor of a model's files that is not among `used`, unless it changes nothing: tables that
/// older versions of transformers wrote too, and a head that repeats the embedding table.
void check_leftovers(const io::WeightFiles& files, const std::set<std::string>& used, const fs::path& path);

/// UserError for a tensor with values that are infinite or not a number: nothing that is computed from it
/// means anything.
[[noreturn]] void refuse_not_finite(const fs::path& path, std::string_view name);

/// Whether only an adapter trains: weights are then those of the adapter, under PEFT's names.
bool has_adapter(const engine::Engine& engine);
/// The file in a run folder that holds its last weights.
const char* weights_name(const engine::Engine& engine);

/// Returns the dtype of most of the values in a model folder or a weight file.
DType main_dtype(const fs::path& model);
/// Returns the dtype of weights that a config.json states; f32 if it states none that Hearth writes. `where`
/// names it in messages.
DType config_dtype(std::string_view json, const std::string& where);

/// Writes weights and statistics under torch's names and layouts, one tensor in memory at a time; `average`
/// writes their moving average instead. Low-rank matrices are f32 whatever `dtype` is, and so is a tensor
/// that f16 cannot hold.
void save_weights(const engine::Engine& engine, const fs::path& path, bool average, DType dtype = DType::f32);

/// Reads them back: every tensor must be there with its shape (in f32, bf16, f16 or f64). UserError names
/// what is missing or differs.
void load_weights(engine::Engine& engine, const fs::path& path);

/// Reads one tensor, which files call `name`; it must be there with its shape.
void load_tensor(engine::Engine& engine, const nn::Tensor& tensor, const std::string& name,
                 const io::WeightFiles& files, const fs::path& path);

/// UserError where the files of a model, or of the adapter on top of it, cannot be opened: known at once, and
/// not when all else has been read.
void check_weights(const ModelFolder& model);

/// Draws the weights under an adapter, which Engine::initialize leaves to files, from the engine's seed.
void draw_frozen(engine::Engine& engine);
/// Reads the model itself from a file or folder, whatever lies on top of it.
void load_model(engine::Engine& engine, const fs::path& path);
/// Reads a model, and the adapter on top of it where the engine has one.
void load_model(engine::Engine& engine, const ModelFolder& model);

}  // namespace hearth::hub
