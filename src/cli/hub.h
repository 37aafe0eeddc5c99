#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "hub/upload.h"
#include "recipe/recipe.h"

namespace hearth::cli {

/// Downloads the files that a name such as hf:ORG/NAME refers to, except those in the cache of the Hugging
/// Face hub, and returns their local path. Prints the plan and the progress to standard error. Throws a
/// UserError on failure.
std::string download(const std::string& name);

/// Uploads files in one commit and returns the URL of the commit (hub::upload_to_hub()). Prints the progress
/// to standard error.
std::string upload(const net::HubName& name, const std::vector<hub::UploadFile>& files,
                   const hub::UploadOptions& options);

/// Downloads each name that starts with hf:, and replaces it by the local path. The first function does so
/// for the options and positional arguments of a command, except those for which takes_text() is true; the
/// second one for the paths in a recipe.
void download_named(CLI::App& verb);
void download_named(recipe::Recipe& recipe);

/// True if the value of an option is text for a model. Such a value may be empty, and is not a file name.
bool takes_text(const CLI::Option& option);

}  // namespace hearth::cli
