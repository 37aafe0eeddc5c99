#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "hub/upload.h"
#include "recipe/recipe.h"

namespace hearth::cli {

/// Downloads what a name such as hf:ORG/NAME refers to, unless the cache of the Hugging Face hub has it, and
/// returns its local path. Prints the plan and the progress to standard error. UserError on failure.
std::string download(const std::string& name);

/// Uploads files in one commit and returns its URL; see hub::upload_to_hub(). Prints as download() does.
std::string upload(const net::HubName& name, const std::vector<hub::UploadFile>& files,
                   const hub::UploadOptions& options);

/// Replaces each name that starts with hf: by its local path (download()): in the values of a command's
/// options and positionals, except for texts given to a model; in the paths of a recipe.
void download_named(CLI::App& verb);
void download_named(recipe::Recipe& recipe);

/// True for options whose value is text that is given to a model. It may be empty, and is no name of a file.
bool takes_text(const CLI::Option& option);

}  // namespace hearth::cli
