#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_chain", NULL, 0, NULL};
PyMODINIT_FUNC PyInit__chain(void) { return PyModule_Create(&module); }
